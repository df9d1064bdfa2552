"""Imported first by the warm server: from then on Ctrl-C disturbs neither it nor a worker that is being born."""

import signal

signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
