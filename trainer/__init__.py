"""The trainer: what runs in the pods."""

from trainer.launch.first_process import end_when_asked

end_when_asked()  # before all else that is imported
