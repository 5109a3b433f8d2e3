#!/bin/sh
# As NVIDIA's image does: a banner, then the command.
echo
echo "============================="
echo "== Triton Inference Server =="
echo "============================="
echo
echo "NVIDIA Release ${NVIDIA_TRITON_SERVER_VERSION} (test bench, CPU only)"
echo "Triton Server Version ${TRITON_SERVER_VERSION}"
echo
exec "$@"
