"""The bench's model for Triton's Python backend: one text in, one text out.

No language model: the answer is `text_model: ` and the words of the question in reverse order, so that a right
answer differs from an echo and is the same each time.
"""

import numpy
import triton_python_backend_utils as pb_utils


def answer(text: str) -> str:
    """The answer to one question."""
    return "text_model: " + " ".join(reversed(text.split()))


class TritonPythonModel:
    """What the Python backend calls."""

    def execute(self, requests):
        """One response a request; each row of the batch is answered by itself."""
        responses = []
        for request in requests:
            rows = pb_utils.get_input_tensor_by_name(request, "text").as_numpy()
            texts = [answer(row.decode("utf-8", "replace")).encode() for row in rows.reshape(-1)]
            output = numpy.array(texts, dtype=numpy.object_).reshape(rows.shape)
            responses.append(pb_utils.InferenceResponse([pb_utils.Tensor("output", output)]))
        return responses
