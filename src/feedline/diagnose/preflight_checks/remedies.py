"""The flags that raise a limit, for Docker, Compose and Kubernetes: lines to paste.

Gives: text. Promises: docs/preflight.md shows the same flags in whole files.
Not its job: when one is needed.
"""

from __future__ import annotations


def more_cpus(count: int) -> str:
    """A larger CPU limit."""
    return (
        f"docker run --cpus={count} …\n"
        f"# Compose:     cpus: {count}\n"
        f'# Kubernetes:  resources: {{limits: {{cpu: "{count}"}}}}'
    )


def more_memory(size: int) -> str:
    """A larger memory limit, rounded up to whole GiB."""
    gib = -(-size // (1 << 30))
    return (
        f"docker run --memory={gib}g …\n"
        f"# Compose:     mem_limit: {gib}g\n"
        f"# Kubernetes:  resources: {{limits: {{memory: {gib}Gi}}}}"
    )


def more_processes(count: int) -> str:
    """More processes and threads."""
    return (
        f"docker run --pids-limit={count} …\n"
        f"# Compose:     pids_limit: {count}\n"
        f"# Kubernetes:  podPidsLimit: {count} in the kubelet's configuration of the node"
    )


OPEN_FILES = """\
ulimit -n 65536                            # before Python starts
docker run --ulimit nofile=65536:65536 …
# Compose:     ulimits: {nofile: {soft: 65536, hard: 65536}}
# Kubernetes:  LimitNOFILE of the node's container runtime; a pod cannot ask for it"""

SHARED_MEMORY = """\
docker run --shm-size=8g …
# Compose:     shm_size: 8gb
# Kubernetes:  volumes: [{name: shm, emptyDir: {medium: Memory, sizeLimit: 8Gi}}]
#              volumeMounts: [{name: shm, mountPath: /dev/shm}]"""

SYSTEM_CALLS = """\
docker run --security-opt seccomp=profile.json …   # Docker's default profile, with the calls allowed
# Compose:     security_opt: ["seccomp=profile.json"]
# Kubernetes:  securityContext: {seccompProfile: {type: RuntimeDefault}}"""

TEMPORARY_FILES = """\
docker run --tmpfs /tmp …
# Compose:     tmpfs: [/tmp]
# Kubernetes:  volumes: [{name: tmp, emptyDir: {}}]
#              volumeMounts: [{name: tmp, mountPath: /tmp}]"""

GPUS = """\
docker run --gpus all …
# Compose:     deploy: {resources: {reservations: {devices: [{driver: nvidia, count: all, capabilities: [gpu]}]}}}
# Kubernetes:  resources: {limits: {nvidia.com/gpu: 1}}"""
