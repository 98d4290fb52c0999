from tests.trainer.mirror.conftest import bucket, gate, objects, s3_environment, s3_server

__all__ = ["bucket", "gate", "objects", "s3_environment", "s3_server"]
