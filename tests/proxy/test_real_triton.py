"""The adapter `triton` against a real Triton Inference Server (on CPU), which tests/bench/engines builds.

Skipped, with a message, where there is no container engine or the image has not been built (`tests/bench/bench build engines`).
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from conftest import ROOT
from fake_engines import proxy, text_of

pytestmark = pytest.mark.slow

IMAGE = "registry.bench.test:5000/nvidia/tritonserver"
START_WITHIN_S = 90
LABEL = "inferack.bench=proxy-tests"
SLOW = {
    "timeouts": {"connect_s": 5, "ttft_s": 20, "idle_s": 20, "answer_s": 20, "total_s": 30},
    "health": {"interval_s": 0.3, "timeout_s": 15},
}

CONFIG = """
name: "{name}"
backend: "python"
max_batch_size: {batch}
input [{{ name: "{input}" data_type: TYPE_STRING dims: [1] }}]
output [{{ name: "{output}" data_type: TYPE_STRING dims: [1] }}]
{extra}
"""

#: Says word after word, notes when it was stopped; bytes that are no UTF-8; an exception; what it was asked with.
MODEL = """
import json, time
import numpy
import triton_python_backend_utils as pb_utils

def out(data):
    return pb_utils.InferenceResponse([pb_utils.Tensor("said", numpy.array([data], dtype=numpy.object_))])

class TritonPythonModel:
    def execute(self, requests):
        results = []
        for request in requests:
            text = pb_utils.get_input_tensor_by_name(request, "prompt").as_numpy().reshape(-1)[0].decode()
            if text == "raise":
                raise RuntimeError("the model's own trouble")
            if text == "parameters":
                text = request.parameters()
            elif text == "bytes":
                text = b"a\\xffb"
            {answer}
        return {result}
"""
PLAIN = MODEL.format(answer="results.append(out(text if isinstance(text, bytes) else text.encode()))", result="results")
STREAM = MODEL.format(
    answer="""sender = request.get_response_sender()
            for number, word in enumerate(text.split()):
                if sender.is_cancelled():
                    open("/models/cancelled", "w").write(str(number))
                    break
                sender.send(out((word + " ").encode()))
                time.sleep(0.1)
            sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)""",
    result="None",
)


def docker(*words: str) -> str:
    """The command's output; of `logs`, what went to standard error too."""
    result = subprocess.run(["docker", *words], capture_output=True, text=True, timeout=120, check=False)
    if result.returncode:
        raise RuntimeError(result.stderr)
    return (result.stdout + result.stderr).strip() if words[0] == "logs" else result.stdout.strip()


def image() -> str:
    """The image's name; skips where there is none."""
    if not shutil.which("docker"):
        pytest.skip("no docker command, so no real Triton")
    try:
        docker("version", "--format", "{{.Server.Version}}")
    except RuntimeError:
        pytest.skip("no container engine answers, so no real Triton")
    name = docker("images", "--format", "{{.Repository}}:{{.Tag}}", IMAGE).partition("\n")[0]
    if not name and (ROOT / ".bench/images/tritonserver.tar").is_file():
        docker("load", "--input", str(ROOT / ".bench/images/tritonserver.tar"))
        name = docker("images", "--format", "{{.Repository}}:{{.Tag}}", IMAGE).partition("\n")[0]
    if not name:
        pytest.skip("the real Triton is not built: tests/bench/bench build engines")
    return name


def add(folder: Path, name: str, code: str, **config: Any) -> None:
    (folder / name / "1").mkdir(parents=True)
    (folder / name / "1/model.py").write_text(code)
    settings = {"name": name, "batch": 0, "input": "prompt", "output": "said", "extra": "", **config}
    (folder / name / "config.pbtxt").write_text(CONFIG.format(**settings))


class Triton:
    """A running server."""

    def __init__(self, container: str, url: str, folder: Path) -> None:
        self.container = container
        self.url = url
        self.folder = folder

    def entry(self, *models: str, **more: Any) -> dict[str, Any]:
        own = {"input": "prompt", "output": "said", "shape": [1]}
        options = {"models": {"plain": own, "words": {**own, "protocol": "generate_stream"}}}
        return {"name": "gpu", "adapter": "triton", "base_url": self.url, "models": list(models), "options": options, **more}


@pytest.fixture(scope="module")
def triton(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Triton]:
    name = image()
    folder = tmp_path_factory.mktemp("models")
    text_model = ROOT / "tests/bench/engines/models/text_model/1/model.py"
    add(folder, "text_model", text_model.read_text(), batch=4, input="text", output="output")
    add(folder, "plain", PLAIN)
    add(folder, "words", STREAM, extra="model_transaction_policy { decoupled: true }")
    folder.chmod(0o777)
    command = ["tritonserver", "--model-repository=/models", "--exit-on-error=false"]
    container = docker("run", "--detach", "--label", LABEL, "--volume", f"{folder}:/models", name, *command)
    try:
        address = docker("inspect", "--format", "{{.NetworkSettings.IPAddress}}", container)
        url = f"http://{address}:8000"
        give_up_at = time.monotonic() + START_WITHIN_S
        while True:
            try:
                urllib.request.urlopen(f"{url}/v2/models/words/ready", timeout=2).close()
                break
            except OSError:
                running = docker("inspect", "--format", "{{.State.Running}}", container) == "true"
                if not running or time.monotonic() > give_up_at:
                    pytest.fail(f"Triton did not start (running: {running}):\n{docker('logs', '--tail', '60', container)}")
                time.sleep(0.2)
        yield Triton(container, url, folder)
    finally:
        docker("rm", "--force", "--volumes", container)


async def test_text_model(triton: Triton) -> None:
    async with proxy(triton.entry("text_model"), **SLOW) as caller:
        code, body, _headers = await caller.infer("What is a rack?")
        assert (code, body["output"]) == (200, "text_model: rack? a is What")
        code, body, _headers = await caller.chat()
        assert (code, body["choices"][0]["message"]["content"]) == (200, "text_model: hello")
        code, events, _headers = await caller.stream(temperature=0.5, seed=3, user="me")
        assert (code, text_of(events), events[-1]) == (200, "text_model: hello", "[DONE]")
        code, body, _headers = await caller.infer("grün ✓ 漢字 " + "x" * 5000)
        assert body["output"].startswith("text_model: " + "x" * 5000 + " 漢字 ✓ grün")


@pytest.mark.parametrize("binary", [True, False])
async def test_bytes_that_are_no_utf8(triton: Triton, binary: bool) -> None:
    entry = triton.entry("plain")
    entry["options"]["binary_output"] = binary
    async with proxy(entry, **SLOW) as caller:
        code, body, _headers = await caller.infer("bytes")
        assert (code, body["output"]) == (200, "a�b")


async def test_parameters_reach_the_model(triton: Triton) -> None:
    async with proxy(triton.entry("plain"), **SLOW) as caller:
        parameters = {"max_tokens": 7, "temperature": 0.5, "user": "me", "flag": True, "priority": 5, "list": [1]}
        code, body, _headers = await caller.infer("parameters", parameters=parameters)
        assert code == 200, body
        assert json.loads(body["output"]) == {"max_tokens": 7, "temperature": 0.5, "user": "me", "flag": True}


async def test_a_models_exception_is_a_502_and_the_engine_stays_ready(triton: Triton) -> None:
    async with proxy(triton.entry("plain"), **SLOW) as caller:
        code, body, _headers = await caller.infer("raise")
        assert (code, body["error"]["code"], body["error"]["engine"]) == (502, "engine_rejected", "gpu")
        assert "the model's own trouble" in body["error"]["message"]
        assert (await caller.infer("fine"))[1]["output"] == "fine"


async def test_a_decoupled_model_streams(triton: Triton) -> None:
    async with proxy(triton.entry("words"), **SLOW) as caller:
        arrivals = []
        body = {"messages": [{"role": "user", "content": "one two three four"}], "stream": True}
        async with caller.session.post(caller.url + "/v1/chat/completions", json=body) as response:
            async for _chunk in response.content.iter_any():
                arrivals.append(time.monotonic())
        assert arrivals[-1] - arrivals[0] > 0.2
        code, answer, _headers = await caller.infer("one two three")
        assert (code, answer["output"]) == (200, "one two three ")


async def test_a_caller_that_leaves_stops_the_model(triton: Triton) -> None:
    mark = triton.folder / "cancelled"
    mark.unlink(missing_ok=True)
    async with proxy(triton.entry("words"), **SLOW) as caller:
        body = {"messages": [{"role": "user", "content": "word " * 30}], "stream": True}
        response = await caller.session.post(caller.url + "/v1/chat/completions", json=body)
        await response.content.readany()
        response.close()
        for _ in range(40):
            if mark.exists() and mark.read_text():
                break
            await asyncio.sleep(0.05)
        assert int(mark.read_text()) < 20


async def test_readiness_names_the_model_that_is_not_there(triton: Triton) -> None:
    async with proxy(triton.entry("text_model", "absent"), ready=False, **SLOW) as caller:
        for _ in range(100):
            code, text = await caller.get("/readyz")
            report = json.loads(text)
            if report["models"]["text_model"]["ready"]:
                break
            await asyncio.sleep(0.05)
        assert (code, report["not_ready"]) == (503, ["absent"])
        assert report["models"]["absent"]["engines"]["gpu"] == "engine gpu: model absent is not ready"
        code, body, _headers = await caller.infer(model="absent")
        assert (code, body["error"]["code"]) == (502, "engine_lacks_model")


async def test_a_dead_stub_is_found_though_the_model_claims_to_be_ready(triton: Triton) -> None:
    async with proxy(triton.entry("text_model", "plain"), **SLOW) as caller:
        processes = [line.split(None, 1) for line in docker("top", triton.container, "-eo", "pid,args").splitlines()[1:]]
        stubs = [int(pid) for pid, arguments in processes if "triton_python_backend_stub" in arguments]
        assert stubs
        for pid in stubs:
            os.kill(pid, signal.SIGKILL)
        with urllib.request.urlopen(f"{triton.url}/v2/models/text_model/ready", timeout=5) as response:
            assert response.status == 200
        code, body, _headers = await caller.infer(model="text_model")
        assert (code, body["error"]["engine"]) == (502, "gpu")
        for _ in range(100):
            code, text = await caller.get("/readyz")
            if code == 503:
                break
            await asyncio.sleep(0.05)
        assert json.loads(text)["not_ready"] == ["text_model", "plain"]
