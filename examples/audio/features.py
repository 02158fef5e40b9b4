"""WAV files to samples, and samples to the log-mel spectrogram of Whisper, in NumPy."""

import io
import wave

import numpy as np

from uncork.adapters import InvalidInput

RATE = 16_000
MAX_SECONDS = 30
MELS = 80
WINDOW, HOP = 400, 160  # 25 ms and 10 ms

_CONVERT = "convert it with ffmpeg -i INPUT -ac 1 -ar 16000 -c:a pcm_s16le audio.wav"


def read_wav(content: bytes) -> np.ndarray:
    """Return the samples of a WAV file as float32 from -1 to 1: mono, 16 kHz.

    Raises:
        InvalidInput: if it is not a WAV file with PCM samples, is empty, or is longer than 30 s.
    """
    try:
        with wave.open(io.BytesIO(content)) as file:
            width, channels, rate = file.getsampwidth(), file.getnchannels(), file.getframerate()
            data = file.readframes(file.getnframes())
    except (wave.Error, EOFError) as error:
        reason = str(error) or "it ends in the header"
        raise InvalidInput(f"the audio is not a WAV file with PCM samples: {reason}; {_CONVERT}") from error
    if width > 4 or not rate:
        raise InvalidInput(
            f"the WAV file has {8 * width} bits per sample at {rate} Hz, the limit is 32 bits; {_CONVERT}"
        )
    data = data[: len(data) // (width * channels) * width * channels]  # the last frame may be incomplete
    if not data:
        raise InvalidInput("the WAV file has no samples")
    samples = _from_pcm(data, width).reshape(-1, channels).mean(axis=1)
    seconds = len(samples) / rate
    if seconds > MAX_SECONDS:
        raise InvalidInput(f"the audio is {seconds:.1f} s long, the limit is {MAX_SECONDS} s; split it")
    return resample(samples, rate).astype(np.float32)


def _from_pcm(data: bytes, width: int) -> np.ndarray:
    """Return little-endian samples of 1 to 4 bytes as numbers from -1 to 1."""
    octets = np.frombuffer(data, np.uint8).reshape(-1, width)
    aligned = np.zeros((len(octets), 4), np.uint8)
    aligned[:, 4 - width :] = octets ^ 0x80 if width == 1 else octets  # only 8-bit samples are unsigned
    return aligned.view("<i4").ravel() / 2**31


def resample(samples: np.ndarray, rate: int) -> np.ndarray:
    """Return samples at 16 kHz, without the frequencies that only one of the two rates can represent."""
    if rate == RATE:
        return samples
    length = max(1, round(len(samples) * RATE / rate))
    return np.fft.irfft(np.fft.rfft(samples), length) * (length / len(samples))


def write_wav(samples: np.ndarray) -> bytes:
    """Return samples at 16 kHz as a WAV file with 16 bits per sample."""
    content = io.BytesIO()
    with wave.open(content, "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(RATE)
        file.writeframes((np.clip(samples, -1, 1) * (2**15 - 1)).astype("<i2").tobytes())
    return content.getvalue()


def _mel_filters() -> np.ndarray:
    """Return the weight of each of 201 frequencies in each of 80 triangular filters of equal area.

    The filters are equally wide on Slaney's mel scale: 200/3 Hz per mel below 1 kHz, above it 27 mels for
    each factor of 6.4 (Slaney, Auditory Toolbox, 1998). librosa.filters.mel computes the same.
    """
    per_mel = np.log(6.4) / 27
    mels = np.linspace(0, 15 + np.log(RATE / 2 / 1000) / per_mel, MELS + 2)
    edges = np.where(mels < 15, mels * 200 / 3, 1000 * np.exp(per_mel * (mels - 15)))
    low, center, high = edges[:-2], edges[1:-1], edges[2:]
    frequencies = np.linspace(0, RATE / 2, WINDOW // 2 + 1)[:, None]
    triangles = np.minimum((frequencies - low) / (center - low), (high - frequencies) / (high - center))
    return (np.maximum(triangles, 0) * 2 / (high - low)).astype(np.float32)


_FILTERS = _mel_filters()
_HANN = np.hanning(WINDOW + 1)[:-1].astype(np.float32)


def log_mel(samples: np.ndarray) -> np.ndarray:
    """Return the log-mel spectrogram of a recording at 16 kHz: 80 numbers per 10 ms, an even number of times.

    As in log_mel_spectrogram of github.com/openai/whisper, whisper/audio.py: Hann windows of 25 ms, power,
    80 mel filters, decimal logarithm, at most 8 below its maximum, scaled.
    """
    frames = -(-len(samples) // (2 * HOP)) * 2
    padded = np.pad(samples, (0, frames * HOP + WINDOW // 2 - len(samples)))
    padded = np.pad(padded, (WINDOW // 2, 0), "reflect")
    windows = np.lib.stride_tricks.sliding_window_view(padded, WINDOW)[::HOP][:frames]
    power = np.abs(np.fft.rfft(windows * _HANN)) ** 2
    logarithm = np.log10(np.maximum(power @ _FILTERS, 1e-10))
    return (np.maximum(logarithm, logarithm.max() - 8) + 4) / 4
