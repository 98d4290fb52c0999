"""Settings of a host behind SSH, whose secrets contain words that a test can search for."""

SECRETS = {
    "host": "ssh",
    "sshHost": "10.1.2.3",
    "sshUser": "admin",
    "sshHostKey": "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIExample",
    "sshPrivateKey": "private-key-hunter1",
    "sudoPassword": "sudo-hunter2",
    "httpProxy": "http://me:proxy-hunter3@proxy.corp.example:3128",
    "httpsProxy": "http://me:proxy-hunter3@proxy.corp.example:3128",
    "gpuOperatorDriver": True,
}
SECRET_KEYS = ("sshPrivateKey", "sudoPassword", "httpProxy", "httpsProxy")
