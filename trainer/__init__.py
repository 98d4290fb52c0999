"""The trainer: the program that runs in the pods of a training."""

from trainer.launch.first_process import end_when_asked

end_when_asked()  # This comes before all other imports: no SIGTERM may be lost during them.
