"""Encoders of text and encoder-decoders against traces: every forward and exact backward pass to the integer."""

from __future__ import annotations

from typing import Any

import pytest

from ullage.errors import UllageError
from ullage.models.config import Config
from ullage.models.decoders import two_sided
from ullage.models.formula import Formula, compiled
from ullage.models.passes import Training, booked
from ullage.models.sample import Sample


def formula(config: dict[str, Any]) -> Formula:
    return compiled(Config(config))


def forward(config: dict[str, Any], sample: Sample, batch: int = 1, attention: str = "full") -> int:
    return batch * sum(w.flops * len(w.layers) * w.quantity.of(sample, attention) for w in formula(config).works)


def trained(config: dict[str, Any], sample: Sample, batch: int = 1) -> int:
    rows = booked(formula(config).works, Training(backward="exact"))
    return batch * sum(row.coefficient * row.quantity.of(sample, "full") for row in rows)


def named(works: Formula, name: str) -> int:
    """The FLOPs of a work per unit of its quantity, all layers together."""
    return sum(work.flops * len(work.layers) for work in works.works if work.name == name)


# fmt: off
BERT = {"vocab_size": 101, "hidden_size": 36, "num_hidden_layers": 3, "num_attention_heads": 4, "intermediate_size": 52}
DISTILLED = {"vocab_size": 101, "dim": 36, "n_layers": 3, "n_heads": 4, "hidden_dim": 52}
NARROW = {**BERT, "embedding_size": 20}
MODERN = {**BERT, "hidden_size": 40, "num_hidden_layers": 5, "local_attention": 8}

# (class, config, forward, forward + backward) of 2 sequences of 17 tokens.
# Traced: torch 2.13, transformers 5.23, meta device, eager attention; the loss sums every output of the head.
ENCODERS: list[tuple[str, dict[str, Any], int, int]] = [
    ("BertForSequenceClassification", BERT, 2076480, 6229440),
    ("BertModel", BERT, 2076192, 6228576),
    ("BertForMaskedLM", BERT, 2406384, 7219152),
    ("BertForPreTraining", BERT, 2411856, 7235568),
    ("BertForTokenClassification", BERT, 2075904, 6227712),
    ("BertForQuestionAnswering", BERT, 2075904, 6227712),
    ("RobertaForSequenceClassification", BERT, 2076480, 6229440),
    ("RobertaModel", BERT, 2076192, 6228576),
    ("RobertaForMaskedLM", BERT, 2406384, 7219152),
    ("XLMRobertaForMaskedLM", BERT, 2406384, 7219152),
    ("CamembertForTokenClassification", BERT, 2075904, 6227712),
    ("ElectraForSequenceClassification", NARROW, 2125440, 6376320),
    ("ElectraModel", NARROW, 2119968, 6359904),
    ("ElectraForMaskedLM", NARROW, 2306288, 6918864),
    ("ElectraForPreTraining", NARROW, 2210544, 6631632),
    ("ElectraForTokenClassification", NARROW, 2124864, 6374592),
    ("DistilBertForSequenceClassification", DISTILLED, 2076480, 6229440),
    ("DistilBertModel", DISTILLED, 2071008, 6213024),
    ("DistilBertForMaskedLM", DISTILLED, 2406384, 7219152),
    ("DistilBertForTokenClassification", DISTILLED, 2075904, 6227712),
    ("ModernBertForSequenceClassification", MODERN, 4766720, 14300160),
    ("ModernBertModel", MODERN, 4760000, 14280000),
    ("ModernBertForMaskedLM", MODERN, 5143520, 15430560),
    ("ModernBertForTokenClassification", MODERN, 4874240, 14622720),
]

T5 = {"vocab_size": 101, "d_model": 36, "d_kv": 10, "d_ff": 52, "num_layers": 3, "num_decoder_layers": 2, "num_heads": 4}
BART = {
    "vocab_size": 101, "d_model": 36, "encoder_layers": 3, "decoder_layers": 2, "encoder_attention_heads": 4,
    "decoder_attention_heads": 6, "encoder_ffn_dim": 52, "decoder_ffn_dim": 44,
}
APART = {**BART, "share_encoder_decoder_embeddings": False, "decoder_vocab_size": 83}
GATED = {**T5, "feed_forward_proj": "gated-gelu"}

# (class, config, forward, forward + backward) of 2 pairs of 17 encoder and 9 decoder tokens; traced as above
PAIRS: list[tuple[str, dict[str, Any], int, int]] = [
    ("T5ForConditionalGeneration", T5, 3780240, 11340720),
    ("T5ForConditionalGeneration", GATED, 4296912, 12890736),
    ("T5Model", T5, 3649344, 10948032),
    ("MT5ForConditionalGeneration", T5, 4296912, 12890736),
    ("UMT5ForConditionalGeneration", T5, 4296912, 12890736),
    *((f"{name}ForConditionalGeneration", BART, 3477168, 10431504)
      for name in ("Bart", "MBart", "PLBart", "Pegasus", "Blenderbot", "BlenderbotSmall", "M2M100")),
    *((f"{name}Model", BART, 3346272, 10038816)
      for name in ("Bart", "MBart", "PLBart", "Pegasus", "Blenderbot", "BlenderbotSmall", "M2M100", "Marian")),
    ("MarianMTModel", BART, 3477168, 10431504),
    ("MarianMTModel", APART, 3453840, 10361520),
]
# fmt: on


@pytest.mark.parametrize(("name", "config", "fwd", "both"), ENCODERS, ids=[f"{row[0]}-{row[2]}" for row in ENCODERS])
def test_an_encoder_costs_what_its_trace_counts(name, config, fwd, both):
    config = {**config, "architectures": [name]}
    assert forward(config, Sample(text=17), 2) == fwd
    assert trained(config, Sample(text=17), 2) == both


@pytest.mark.parametrize(("name", "config", "fwd", "both"), PAIRS, ids=[f"{row[0]}-{row[2]}" for row in PAIRS])
def test_an_encoder_decoder_costs_what_its_trace_counts(name, config, fwd, both):
    config = {**config, "architectures": [name]}
    assert forward(config, Sample(text=9, encoder=17), 2) == fwd
    assert trained(config, Sample(text=9, encoder=17), 2) == both


def test_the_encoder_of_t5_alone_is_gated_where_its_type_is():
    # traced: torch 2.13, transformers 5.23, meta device; 2 sequences of 17 tokens
    assert forward({**T5, "architectures": ["T5EncoderModel"]}, Sample(text=17), 2) == 2216256
    assert trained({**T5, "architectures": ["T5EncoderModel"]}, Sample(text=17), 2) == 6648768
    assert forward({**T5, "architectures": ["UMT5EncoderModel"], "model_type": "umt5"}, Sample(text=17), 2) == 2598144


def test_a_bare_bert_classifies_sequences_with_as_many_classes_as_it_lists():
    # 3 sequences of 11 tokens, 7 classes. Traced: torch 2.13, transformers 5.23, meta device
    assert forward({**BERT, "model_type": "bert", "num_labels": 7}, Sample(text=11), 3) == 1933848
    named_classes = {**BERT, "model_type": "bert", "id2label": {str(i): "x" for i in range(7)}}
    assert forward(named_classes, Sample(text=11), 3) == 1933848


def test_cross_attention_makes_keys_from_the_encoder_and_queries_from_the_decoder():
    works = {work.name: work for work in formula({**T5, "model_type": "t5"}).works}
    sample = Sample(text=9, encoder=17)
    rows = {part: works[f"cross_attention.{part}"].quantity.of(sample, "full") for part in ("q", "k", "v", "scores", "values", "out")}
    assert rows == {"q": 9, "k": 17, "v": 17, "scores": 9 * 17, "values": 9 * 17, "out": 9}


def test_t5_has_as_many_decoder_layers_as_encoder_layers_unless_told():
    # Cross-attention's queries: 2 × 36 × 40 = 2,880 FLOPs a token and layer
    silent = {key: value for key, value in T5.items() if key != "num_decoder_layers"} | {"model_type": "t5"}
    assert named(formula(silent), "cross_attention.q") == 3 * 2880
    assert named(formula({**T5, "model_type": "t5"}), "cross_attention.q") == 2 * 2880


def test_a_step_of_generation_finds_the_encoder_and_its_keys_in_the_cache():
    config = {**BART, "model_type": "bart"}
    # One token after 8: per layer 2 × 36 × 36 for each of q, k, v, out, cross q, cross out = 15,552, and 2 × 2 × 36 × 44 = 6,336 for
    # the MLP; attention to 9 tokens 4 × 36 × 9 = 1,296, to the encoder's 17 4 × 36 × 17 = 2,448: 25,632, twice; the head 7,272
    assert forward(config, Sample(text=1, context=8, encoder=17)) == 2 * 25632 + 2 * 36 * 101


def test_only_the_decoder_of_an_encoder_decoder_is_causal():
    # 9 decoder tokens: 9 × 10 / 2 = 45 pairs instead of 81, 4 × 36 FLOPs each in 2 layers
    config, sample = {**BART, "model_type": "bart"}, Sample(text=9, encoder=17)
    assert forward(config, sample) - forward(config, sample, attention="causal") == 2 * 4 * 36 * (81 - 45)


WHISPER = {**BART, "num_mel_bins": 10, "max_source_positions": 19}


def test_whisper_costs_what_its_trace_counts():
    # 2 windows of 38 frames, 9 tokens of text. Traced: torch 2.13, transformers 5.23, meta device
    config = {**WHISPER, "architectures": ["WhisperForConditionalGeneration"]}
    sample = Sample(text=9, audio=38)
    assert (forward(config, sample, 2), trained(config, sample, 2)) == (4265136, 12631248)
    bare = {**WHISPER, "architectures": ["WhisperModel"]}
    assert (forward(bare, sample, 2), trained(bare, sample, 2)) == (4134240, 12238560)


def test_whisper_hears_a_whole_window_unless_its_frames_are_given():
    config = {**WHISPER, "model_type": "whisper"}
    assert forward(config, Sample(text=9)) == forward(config, Sample(text=9, audio=38))
    # The default window of the class: 2 × 1,500 frames through the first convolution, 2 × 3 × 10 × 36 FLOPs each
    silent = {key: value for key, value in config.items() if key != "max_source_positions"}
    first = next(work for work in formula(silent).works if work.name == "conv.first")
    assert first.flops * first.quantity.of(Sample(text=9), "full") == 3000 * 2160


def test_whisper_generates_without_hearing_again():
    works = formula({**WHISPER, "model_type": "whisper"}).works
    step = Sample(text=1, context=5)
    assert not [w.name for w in works if w.name.startswith(("conv", "encoder", "cross_attention.k")) and w.quantity.of(step, "full")]
    scores = next(work for work in works if work.name == "cross_attention.scores")
    assert scores.quantity.of(step, "full") == 19  # one token sees all positions of the window


def test_modernbert_sees_half_its_window_on_each_side_in_local_layers():
    # 17 tokens, 4 to each side: 17 + 2 × (1 + 2 + 3 + 4 + 12 × 4) = 133 pairs of 289. Layers 0 and 3 of 5 are global.
    config = {**MODERN, "model_type": "modernbert"}
    assert two_sided(5).of(Sample(text=17), "causal") == 133
    spared = forward(config, Sample(text=17)) - forward(config, Sample(text=17), attention="causal")
    assert spared == 3 * 4 * 40 * (289 - 133)
    assert formula(config).attention == "causal"


@pytest.mark.parametrize("tokens", [1, 2, 4, 5, 6, 30])
@pytest.mark.parametrize("reach", [1, 3, 5])
def test_a_window_on_both_sides_counts_the_pairs_within_reach(tokens, reach):
    brute = sum(abs(i - j) <= reach for i in range(tokens) for j in range(tokens))
    assert two_sided(reach + 1).of(Sample(text=tokens), "causal") == brute


def test_layer_types_name_modernberts_local_layers_where_they_are_given():
    kinds = ["sliding_attention"] * 4 + ["full_attention"]
    works = formula({**MODERN, "model_type": "modernbert", "layer_types": kinds}).works
    scores = {work.quantity.name: tuple(work.layers) for work in works if work.name == "attention.scores"}
    assert sorted(scores.values()) == [(0, 1, 2, 3), (4,)]


def test_an_encoder_that_misses_a_field_names_it():
    with pytest.raises(UllageError, match="has no field intermediate_size"):
        formula({key: value for key, value in BERT.items() if key != "intermediate_size"} | {"model_type": "bert"})
    with pytest.raises(UllageError, match="5 heads do not divide"):
        formula({**BERT, "num_attention_heads": 5, "model_type": "bert"})
