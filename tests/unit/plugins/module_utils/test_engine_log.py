"""The first error in engines' logs, as real engines wrote them, and in Docker Engine's words."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.inferack.rack.plugins.module_utils import _engine_log as log

HARMLESS = """\
W1130 13:38:35.648705 1 pinned_memory_manager.cc:273] "Unable to allocate pinned system memory, pinned memory pool will not be available: CUDA driver version is insufficient for CUDA runtime version"
I1130 13:38:35.649400 1 cuda_memory_manager.cc:117] "CUDA memory pool disabled"
E1130 13:38:35.649476 1 server.cc:241] "CudaDriverHelper has not been initialized."
"""
END = """\
Error: Failed to initialize NVML
W1130 13:38:35.655557 1 metrics.cc:798] "DCGM unable to start: DCGM initialization error"
E1130 13:38:35.656500 1 tritonserver.cc:2607] "Internal: failed to load all models"
"""


@pytest.mark.parametrize(
    ("text", "check", "line", "model", "remedy"),
    [
        (
            '[libprotobuf ERROR /tmp/x/text_format.cc:337] Error parsing text-format inference.ModelConfig: 4:46: Unknown enumeration value of "TYPE_BYTES" for field "data_type".\n'
            "E1130 13:38:35.652336 1 model_repository_manager.cc:1460] \"Poll failed for model directory 'm': failed to read text proto from /models/m/config.pbtxt\"\n",
            "engine.config",
            'Error parsing text-format inference.ModelConfig: 4:46: Unknown enumeration value of "TYPE_BYTES" for field "data_type".',
            "m",
            "line:column",
        ),
        (
            "E1130 13:39:03.079216 1 model_repository_manager.cc:1460] \"Poll failed for model directory 'm': unexpected directory name 'm' for model 'other', directory name must equal model name\"\n",
            "engine.config",
            "Poll failed for model directory 'm': unexpected directory name 'm' for model 'other', directory name must equal model name",
            "m",
            "remove the folder",
        ),
        (
            "E1130 13:40:18.022929 1 model_repository_manager.cc:724] \"failed to load model 'm': at least one version must be available under the version policy of model 'm'\"\n",
            "engine.config",
            "failed to load model 'm': at least one version must be available under the version policy of model 'm'",
            "m",
            "numbered version folder",
        ),
        (
            "E1130 13:38:49.066223 1 model_lifecycle.cc:642] \"failed to load 'm' version 1: Invalid argument: unable to find backend library for backend 'onnxruntime', try specifying runtime on the model configuration.\"\n",
            "engine.models",
            "failed to load 'm' version 1: Invalid argument: unable to find backend library for backend 'onnxruntime', try specifying runtime on the model configuration.",
            "m",
            "backend",
        ),
        (
            "E1130 13:38:55.922258 1 model_lifecycle.cc:642] \"failed to load 'm' version 1: Internal: ModuleNotFoundError: No module named 'torch'\\n\\nAt:\\n  /models/m/1/model.py(1): <module>\\n\"\n",
            "engine.models",
            "failed to load 'm' version 1: Internal: ModuleNotFoundError: No module named 'torch'",
            "m",
            "Python package",
        ),
        (
            "E1130 13:39:19.767975 1 model_lifecycle.cc:642] \"failed to load 'm' version 1: Invalid argument: instance group m_0 of model m has kind KIND_GPU but no GPUs are available\"\n",
            "engine.models",
            "failed to load 'm' version 1: Invalid argument: instance group m_0 of model m has kind KIND_GPU but no GPUs are available",
            "m",
            "KIND_CPU",
        ),
        (
            'E1130 13:39:35.713756 1 tritonserver.cc:2607] "Internal: failed to stat file /models"\n',
            "engine.models",
            "failed to stat file /models",
            "",
            "model repository",
        ),
        (
            "nimlib.exceptions.ManifestDownloadError: Error downloading manifest: Authentication Error: the NGC_API_KEY is invalid\n",
            "engine.registry",
            "nimlib.exceptions.ManifestDownloadError: Error downloading manifest: Authentication Error: the NGC_API_KEY is invalid",
            "",
            "nim_api_key",
        ),
        (
            "PermissionError: [Errno 13] Permission denied: '/opt/nim/.cache/ngc'\n",
            "engine.config",
            "PermissionError: [Errno 13] Permission denied: '/opt/nim/.cache/ngc'",
            "",
            "cache folder",
        ),
        (
            "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB\n",
            "gpu.memory",
            "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB",
            "",
            "smaller",
        ),
        ("2026-11-30 13:00:00,123 ERROR the engine fell over\n", "engine.ready", "the engine fell over", "", "log"),
    ],
)
def test_first_error(text: str, check: str, line: str, model: str, remedy: str) -> None:
    found = log.first_error(HARMLESS + text + END)
    assert found is not None
    assert (found.check, found.line, found.model) == (check, line, model)
    assert remedy in found.remedy


@pytest.mark.parametrize("text", ["", HARMLESS, HARMLESS + END, 'I1130 1 http_server.cc:4713] "Started HTTPService"\n'])
def test_a_log_without_a_cause(text: str) -> None:
    assert log.first_error(text) is None


def test_the_first_of_several_counts() -> None:
    lines = [f"E1130 13:38:49.06 1 m.cc:6] \"failed to load '{name}' version 1: Internal: no\"" for name in ("first", "second")]
    found = log.first_error("\n".join(lines))
    assert found is not None
    assert found.model == "first"


@pytest.mark.parametrize(
    ("name", "check"),
    [
        ("triton_no_backend_library_onnx.txt", "engine.models"),
        ("triton_poll_failed_extra_brace.txt", "engine.config"),
        ("triton_poll_failed_quoted_new_format.txt", "engine.config"),
        ("triton_poll_failed_template_placeholder.txt", "engine.config"),
        ("nim_unknown_profile_json.txt", "engine.ready"),
    ],
)
def test_logs_from_the_field(name: str, check: str) -> None:
    case = Path(__file__).resolve().parents[5] / "shared/cases/docker" / name
    if not case.exists():
        pytest.skip("the shared cases are not beside the checkout")
    found = log.first_error(case.read_text())
    assert found is not None
    assert found.check in (check, "engine.config")
    assert found.line


@pytest.mark.parametrize(
    ("message", "check", "words"),
    [
        ("unauthorized: authentication required", "engine.registry", "registry.test:5000 refused the login of $oauthtoken"),
        (
            "pull access denied for x, repository does not exist or may require 'docker login': denied",
            "engine.registry",
            "refused",
        ),
        (
            "manifest for registry.test:5000/a/b:1 not found: manifest unknown: manifest unknown",
            "engine.image",
            "registry.test:5000 has no a/b:1",
        ),
        (
            'Get "https://registry.test:5000/v2/": x509: certificate signed by unknown authority',
            "engine.registry",
            "not trusted",
        ),
        (
            'Get "https://registry.test:5000/v2/": dial tcp: lookup registry.test: no such host',
            "engine.registry",
            "cannot be asked",
        ),
        ("write /var/lib/docker/tmp/GetImageBlob1: no space left on device", "node.disk", "no space left"),
    ],
)
def test_why_an_image_cannot_be_pulled(message: str, check: str, words: str) -> None:
    found = log.pull_error(message, "registry.test:5000/a/b:1", "registry.test:5000", "$oauthtoken")
    assert found.check == check
    assert words in found.line
    assert found.remedy.endswith("run again.")


def test_a_pull_without_a_login_says_so() -> None:
    assert "a pull without a login" in log.pull_error("unauthorized", "a/b", "docker.io", "").line


@given(st.text())
def test_any_text_gives_a_short_line(text: str) -> None:
    found = log.first_error(text)
    assert found is None or (len(found.line) <= log.LONGEST_LINE and "\n" not in found.line)
    assert log.start_error(text).remedy
