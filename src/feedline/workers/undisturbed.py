"""The warm server imports this first: from then on Ctrl-C disturbs neither the server nor a worker that is starting."""

import signal

signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
