"""Sound: every container and sample type that must be heard, and files that only look like it."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from itertools import chain

import numpy as np

from hostile.case import Case, cuts
from hostile.pixels import encoded, photo
from hostile.recording import film, sound, tone, wav

SECOND = (1.0,)
NO_SOUND = "no audio stream"
BROKEN = "cannot be decoded|codec that is not known"


def cases() -> Iterator[Case]:
    yield from chain(_waves(), _coded(), _lying_waves(), _broken(), _others())


def _waves() -> Iterator[Case]:
    """PCM of every kind."""
    mono = tone()
    scaled = mono.astype(np.float64) / 32_768
    for name, data in {
        "16k-mono": wav(mono),
        "8k-mono": wav(tone(rate=8_000), 8_000),
        "48k-stereo": wav(tone(rate=48_000, channels=2), 48_000, 2),
        "44k-six-channels": wav(tone(rate=44_100, channels=6), 44_100, 6),
        "192k": wav(tone(rate=192_000), 192_000),
        "11025": wav(tone(rate=11_025), 11_025),
        "float": wav(scaled.astype(np.float32), bits=32, kind=3),
        "double": wav(scaled, bits=64, kind=3),
        "8-bits": wav((scaled * 127 + 128).astype(np.uint8), bits=8),
        "24-bits": wav(
            np.ascontiguousarray(mono.T.astype("<i4") << 8).view(np.uint8).reshape(-1, 4)[:, :3].tobytes(), bits=24
        ),
        "32-bits": wav(mono.astype(np.int32) << 16, bits=32),
        "a-law": wav(bytes(range(256)) * 63, bits=8, kind=6),
        "mu-law": wav(bytes(range(256)) * 63, bits=8, kind=7),
        "loud-float": wav((scaled * 1e6).astype(np.float32), bits=32, kind=3),
        "silence": wav(np.zeros((1, 16_000), np.int16)),
    }.items():
        yield Case(f"wav-{name}", "audio", data, SECOND)
    yield Case("wav-sixty-channels", "audio", wav(np.zeros((60, 16_000), np.int16), channels=60), BROKEN)
    yield Case("wav-one-sample", "audio", wav(mono[:, :1]), (0.0,))
    yield Case("wav-short", "audio", wav(mono[:, :160]), (0.01,))


def _coded() -> Iterator[Case]:
    mono, wide, stereo = tone(), tone(rate=48_000), tone(rate=44_100, channels=2)
    for name, data in {
        "mp3": sound("mp3", "libmp3lame", stereo, 44_100, "stereo"),
        "mp3-16k": sound("mp3", "libmp3lame", mono),
        "flac": sound("flac", "flac", mono),
        "flac-stereo": sound("flac", "flac", stereo, 44_100, "stereo"),
        "ogg-opus": sound("ogg", "libopus", wide, 48_000),
        "webm-opus": sound("webm", "libopus", wide, 48_000),
        "m4a": sound("ipod", "aac", mono),
        "mp4-sound-only": sound("mp4", "aac", stereo, 44_100, "stereo"),
        "aac": sound("adts", "aac", mono),
        "aiff": sound("aiff", "pcm_s16be", mono),
        "mov-pcm": sound("mov", "pcm_s16le", mono),
        "mkv-pcm": sound("matroska", "pcm_s16le", mono),
        "mpegts-aac": sound("mpegts", "aac", mono),
        "of-a-film": film(heard=mono),
        "mp3-tag-in-front": b"ID3\x04\0\0\0\0\x7f\x7f" + bytes(16_383) + sound("mp3", "libmp3lame", mono),
    }.items():
        yield Case(name, "audio", data, SECOND)


def _lying_waves() -> Iterator[Case]:
    """RIFF headers that do not say what follows."""
    mono = tone()
    for name, data in {
        "endless-data": wav(mono, data_size=2**32 - 1, riff_size=2**32 - 1),
        "more-data-than-there-is": wav(mono, data_size=10**9),
        "riff-size-zero": wav(mono, riff_size=0),
        "riff-size-small": wav(mono, riff_size=40),
        "list-in-front": wav(mono).replace(b"data", b"LIST\x04\0\0\0INFOdata", 1),
        "odd-end": wav(mono) + b"\0",
        "garbage-behind": wav(mono) + bytes(range(256)) * 9,
    }.items():
        yield Case(f"wav-{name}", "audio", data, SECOND)
    yield Case("wav-half-the-data", "audio", wav(mono, data_size=16_000), (0.5,))
    yield Case("wav-data-size-zero", "audio", wav(mono, data_size=0), SECOND)
    for name, data in {
        "no-data": wav(b""),
        "header-only": wav(mono)[:44],
        "rate-zero": wav(mono, 0),
        "no-channels": wav(mono, channels=0),
        "unknown-kind": wav(mono, kind=0x7777),
        "bits-zero": wav(mono, bits=0, block=2),
        "no-format": wav(mono).replace(b"fmt ", b"junk"),
    }.items():
        yield Case(f"wav-{name}", "audio", data, f"{NO_SOUND}|{BROKEN}")
    for name, value in {"nan": np.nan, "infinity": np.inf}.items():
        samples = np.full((1, 16_000), value, np.float32)
        yield Case(f"wav-{name}", "audio", wav(samples, bits=32, kind=3), "not finite")
    yield Case("wav-too-long", "audio", wav(bytes(8_000 * 21), 8_000, bits=8), "longer than the 20 seconds")
    yield Case("wav-one-sample-a-second", "audio", wav(bytes(2_000), 1), "longer than the 20 seconds")
    yield Case("wav-4-GHz", "audio", wav(mono, 2**32 - 1), f"{NO_SOUND}|{BROKEN}")


def _broken() -> Iterator[Case]:
    mp3 = sound("mp3", "libmp3lame", tone())
    third = len(mp3) // 3
    noise = np.random.default_rng(3).bytes(400)
    yield Case("mp3-garbage-between", "audio", mp3[:third] + noise + mp3[third:], BROKEN)
    yield Case("mp3-zeros-between", "audio", mp3[:third] + bytes(400) + mp3[third:], BROKEN)
    yield from cuts("m4a", "audio", sound("ipod", "aac", tone()), f"{BROKEN}|{NO_SOUND}")
    flac = sound("flac", "flac", tone())
    yield Case("flac-header-only", "audio", flac[:42], f"{BROKEN}|{NO_SOUND}")
    yield Case("flac-no-rate", "audio", flac[:18] + b"\0\0\0" + flac[21:], SECOND)
    ogg = sound("ogg", "libopus", tone(rate=48_000), 48_000)
    yield Case("ogg-first-page", "audio", ogg[: ogg.index(b"OggS", 4)], f"{BROKEN}|{NO_SOUND}")
    yield Case("ogg-pages-without-capture", "audio", ogg.replace(b"OggS", b"OggX"), BROKEN)
    yield Case("mp3-tag-only", "audio", b"ID3\x04\0\0\0\0\x01\x00" + bytes(128), f"{BROKEN}|{NO_SOUND}")
    yield Case("mp3-endless-tag", "audio", b"ID3\x04\0\0\x7f\x7f\x7f\x7f" + mp3, f"{BROKEN}|{NO_SOUND}")
    yield Case("riff-in-riff", "audio", b"RIFF" + struct.pack("<I", 20) + b"WAVE" + b"RIFF\x08\0\0\0WAVEfmt ", BROKEN)


def _others() -> Iterator[Case]:
    yield Case("film-without-sound", "audio", film(), NO_SOUND)
    for name, data in {
        "text": b"hello hello",
        "picture": encoded(photo(), "PNG"),
        "playlist": b"#EXTM3U\n#EXT-X-TARGETDURATION:9\n#EXTINF:9,\nfile:///etc/passwd\n",
        "concat": b"ffconcat version 1.0\nfile /etc/passwd\n",
        "session": b"v=0\no=- 0 0 IN IP4 127.0.0.1\nm=audio 9 RTP/AVP 0\n",
        "midi": b"MThd\0\0\0\6\0\0\0\1\0\x60MTrk\0\0\0\4\0\xff\x2f\0",
        "zeros": bytes(65_536),
        "noise": np.random.default_rng(2).bytes(65_536),
        "subtitles": b"1\n00:00:01,000 --> 00:00:02,000\nhello\n",
    }.items():
        yield Case(f"no-sound-{name}", "audio", data, f"{BROKEN}|{NO_SOUND}")
