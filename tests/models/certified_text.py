"""Dense decoders, encoders and pairs of both, small and odd, to be certified on."""

# fmt: off
from __future__ import annotations

from typing import Any

CONFIGS: dict[str, list[dict[str, Any]]] = {
    "llama": [
        {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 48, "intermediate_size": 80, "num_hidden_layers": 3,
         "num_attention_heads": 4, "vocab_size": 101, "num_key_value_heads": 2, "head_dim": 20},
        {"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "hidden_size": 48, "intermediate_size": 80, "num_hidden_layers": 3,
         "num_attention_heads": 4, "vocab_size": 101, "num_key_value_heads": 1, "head_dim": 10, "tie_word_embeddings": True},
        {"architectures": ["MistralForCausalLM"], "model_type": "mistral", "hidden_size": 48, "intermediate_size": 80,
         "num_hidden_layers": 3, "num_attention_heads": 4, "vocab_size": 101, "num_key_value_heads": 4, "sliding_window": 5},
        {"architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2", "hidden_size": 48, "intermediate_size": 80, "num_hidden_layers": 3,
         "num_attention_heads": 4, "vocab_size": 101, "num_key_value_heads": 2},
    ],
    "cohere": [
        {"architectures": ["CohereForCausalLM"], "model_type": "cohere", "hidden_size": 48, "intermediate_size": 80, "num_hidden_layers":
         3, "num_attention_heads": 4, "vocab_size": 101, "num_key_value_heads": 2, "head_dim": 12, "pad_token_id": 0},
        {"architectures": ["Cohere2ForCausalLM"], "model_type": "cohere2", "hidden_size": 48, "intermediate_size": 80,
         "num_hidden_layers": 3, "num_attention_heads": 4, "vocab_size": 101, "num_key_value_heads": 2, "head_dim": 20, "pad_token_id":
         0},
    ],
    "diffllama": [
        {"architectures": ["DiffLlamaForCausalLM"], "model_type": "diffllama", "hidden_size": 48, "intermediate_size": 80,
         "num_hidden_layers": 3, "num_attention_heads": 4, "vocab_size": 101, "num_key_value_heads": 2, "head_dim": 12, "pad_token_id":
         0},
    ],
    "gemma": [
        {"architectures": ["GemmaForCausalLM"], "model_type": "gemma", "hidden_size": 48, "intermediate_size": 80, "num_hidden_layers": 3,
         "num_attention_heads": 4, "vocab_size": 101, "num_key_value_heads": 2, "head_dim": 20, "pad_token_id": 0},
        {"architectures": ["Gemma2ForCausalLM"], "model_type": "gemma2", "hidden_size": 48, "intermediate_size": 80, "num_hidden_layers":
         3, "num_attention_heads": 4, "vocab_size": 101, "num_key_value_heads": 2, "head_dim": 20, "pad_token_id": 0, "sliding_window":
         6},
        {"architectures": ["Gemma3ForCausalLM"], "model_type": "gemma3_text", "hidden_size": 48, "intermediate_size": 80,
         "num_hidden_layers": 3, "num_attention_heads": 4, "vocab_size": 101, "num_key_value_heads": 2, "head_dim": 20, "pad_token_id": 0,
         "sliding_window": 6},
    ],
    "glm": [
        {"architectures": ["GlmForCausalLM"], "model_type": "glm", "hidden_size": 48, "intermediate_size": 80, "num_hidden_layers": 3,
         "num_attention_heads": 4, "vocab_size": 101, "num_key_value_heads": 2, "head_dim": 20, "pad_token_id": 0},
        {"architectures": ["Glm4ForCausalLM"], "model_type": "glm4", "hidden_size": 48, "intermediate_size": 80, "num_hidden_layers": 3,
         "num_attention_heads": 4, "vocab_size": 101, "num_key_value_heads": 2, "head_dim": 20, "pad_token_id": 0},
    ],
    "olmo": [
        {"architectures": ["OlmoForCausalLM"], "model_type": "olmo", "hidden_size": 48, "intermediate_size": 80, "num_hidden_layers": 3,
         "num_attention_heads": 4, "vocab_size": 101, "num_key_value_heads": 2, "head_dim": 12, "pad_token_id": 0},
        {"architectures": ["Olmo2ForCausalLM"], "model_type": "olmo2", "hidden_size": 48, "intermediate_size": 80, "num_hidden_layers": 3,
         "num_attention_heads": 4, "vocab_size": 101, "num_key_value_heads": 2, "head_dim": 12, "pad_token_id": 0},
    ],
    "phi": [
        {"architectures": ["PhiForCausalLM"], "model_type": "phi", "hidden_size": 48, "intermediate_size": 80, "num_hidden_layers": 3,
         "num_attention_heads": 4, "vocab_size": 101, "num_key_value_heads": 2, "head_dim": 12, "pad_token_id": 0},
        {"architectures": ["Phi3ForCausalLM"], "model_type": "phi3", "hidden_size": 48, "intermediate_size": 80, "num_hidden_layers": 3,
         "num_attention_heads": 4, "vocab_size": 101, "num_key_value_heads": 2, "head_dim": 12, "pad_token_id": 0},
    ],
    "smollm3": [
        {"architectures": ["SmolLM3ForCausalLM"], "model_type": "smollm3", "hidden_size": 48, "intermediate_size": 80,
         "num_hidden_layers": 3, "num_attention_heads": 4, "vocab_size": 101, "num_key_value_heads": 2, "head_dim": 12, "pad_token_id":
         0},
    ],
    "starcoder2": [
        {"architectures": ["Starcoder2ForCausalLM"], "model_type": "starcoder2", "hidden_size": 48, "intermediate_size": 80,
         "num_hidden_layers": 3, "num_attention_heads": 4, "vocab_size": 101, "num_key_value_heads": 2, "head_dim": 12, "pad_token_id":
         0},
    ],
    "falcon": [
        {"architectures": ["FalconForCausalLM"], "model_type": "falcon", "hidden_size": 48, "intermediate_size": 80, "num_hidden_layers":
         3, "num_attention_heads": 4, "vocab_size": 101, "new_decoder_architecture": True, "num_kv_heads": 2},
        {"architectures": ["FalconForCausalLM"], "model_type": "falcon", "hidden_size": 48, "intermediate_size": 80, "num_hidden_layers":
         3, "num_attention_heads": 4, "vocab_size": 101, "multi_query": True, "ffn_hidden_size": 72},
    ],
    "gpt_neox": [
        {"architectures": ["GPTNeoXForCausalLM"], "model_type": "gpt_neox", "hidden_size": 48, "intermediate_size": 80,
         "num_hidden_layers": 3, "num_attention_heads": 4, "vocab_size": 101},
        {"architectures": ["PersimmonForCausalLM"], "model_type": "persimmon", "hidden_size": 48, "intermediate_size": 80,
         "num_hidden_layers": 3, "num_attention_heads": 4, "vocab_size": 101},
    ],
    "gpt2": [
        {"architectures": ["GPT2LMHeadModel"], "model_type": "gpt2", "n_embd": 48, "n_layer": 3, "n_head": 4, "n_positions": 256,
         "vocab_size": 101, "n_inner": 80},
        {"architectures": ["GPTBigCodeForCausalLM"], "model_type": "gpt_bigcode", "n_embd": 48, "n_layer": 3, "n_head": 4, "n_positions":
         256, "vocab_size": 101},
    ],
    "gptj": [
        {"architectures": ["GPTJForCausalLM"], "model_type": "gptj", "n_embd": 48, "n_layer": 3, "n_head": 4, "n_positions": 256,
         "vocab_size": 101, "rotary_dim": 8},
    ],
    "codegen": [
        {"architectures": ["CodeGenForCausalLM"], "model_type": "codegen", "n_embd": 48, "n_layer": 3, "n_head": 4, "n_positions": 256,
         "vocab_size": 101, "rotary_dim": 8},
    ],
    "ctrl": [
        {"architectures": ["CTRLLMHeadModel"], "model_type": "ctrl", "n_embd": 48, "n_layer": 3, "n_head": 4, "n_positions": 256,
         "vocab_size": 101, "dff": 80},
    ],
    "openai_gpt": [
        {"architectures": ["OpenAIGPTLMHeadModel"], "model_type": "openai-gpt", "n_embd": 48, "n_layer": 3, "n_head": 4, "n_positions":
         256, "vocab_size": 101},
    ],
    "gpt_neo": [
        {"architectures": ["GPTNeoForCausalLM"], "model_type": "gpt_neo", "hidden_size": 48, "num_layers": 3, "num_heads": 4,
         "intermediate_size": 80, "vocab_size": 101, "window_size": 6, "attention_types": [[["global", "local", "global"], 1]],
         "max_position_embeddings": 256},
    ],
    "opt": [
        {"architectures": ["OPTForCausalLM"], "model_type": "opt", "hidden_size": 48, "num_hidden_layers": 3, "num_attention_heads": 4,
         "ffn_dim": 80, "vocab_size": 101, "word_embed_proj_dim": 28, "max_position_embeddings": 256},
    ],
    "biogpt": [
        {"architectures": ["BioGptForCausalLM"], "model_type": "biogpt", "hidden_size": 48, "intermediate_size": 80, "num_hidden_layers":
         3, "num_attention_heads": 4, "vocab_size": 101, "max_position_embeddings": 256},
    ],
    "xglm": [
        {"architectures": ["XGLMForCausalLM"], "model_type": "xglm", "d_model": 48, "num_layers": 3, "attention_heads": 4, "ffn_dim": 80,
         "vocab_size": 101},
    ],
    "bloom": [
        {"architectures": ["BloomForCausalLM"], "model_type": "bloom", "hidden_size": 48, "n_layer": 3, "n_head": 4, "vocab_size": 101},
    ],
    "mpt": [
        {"architectures": ["MptForCausalLM"], "model_type": "mpt", "d_model": 48, "n_layers": 3, "n_heads": 4, "vocab_size": 101},
    ],
    "bert": [
        {"architectures": ["BertForSequenceClassification"], "model_type": "bert", "hidden_size": 48, "intermediate_size": 80,
         "num_hidden_layers": 3, "num_attention_heads": 4, "vocab_size": 101, "max_position_embeddings": 256},
        {"architectures": ["BertForMaskedLM"], "model_type": "bert", "hidden_size": 48, "intermediate_size": 80, "num_hidden_layers": 3,
         "num_attention_heads": 4, "vocab_size": 101, "max_position_embeddings": 256},
    ],
    "roberta": [
        {"architectures": ["RobertaForMaskedLM"], "model_type": "roberta", "hidden_size": 48, "intermediate_size": 80,
         "num_hidden_layers": 3, "num_attention_heads": 4, "vocab_size": 101, "max_position_embeddings": 256},
    ],
    "electra": [
        {"architectures": ["ElectraForSequenceClassification"], "model_type": "electra", "hidden_size": 48, "intermediate_size": 80,
         "num_hidden_layers": 3, "num_attention_heads": 4, "vocab_size": 101, "max_position_embeddings": 256, "embedding_size": 28},
    ],
    "distilbert": [
        {"architectures": ["DistilBertForSequenceClassification"], "model_type": "distilbert", "dim": 48, "hidden_dim": 80, "n_layers": 3,
         "n_heads": 4, "vocab_size": 101, "max_position_embeddings": 256},
    ],
    "modernbert": [
        {"architectures": ["ModernBertForMaskedLM"], "model_type": "modernbert", "hidden_size": 48, "intermediate_size": 80,
         "num_hidden_layers": 3, "num_attention_heads": 4, "vocab_size": 101, "max_position_embeddings": 256, "local_attention": 6,
         "pad_token_id": 0},
    ],
    "modernbert_decoder": [
        {"architectures": ["ModernBertDecoderForCausalLM"], "model_type": "modernbert-decoder", "hidden_size": 48, "intermediate_size":
         80, "num_hidden_layers": 3, "num_attention_heads": 4, "vocab_size": 101, "max_position_embeddings": 256, "local_attention": 6,
         "pad_token_id": 0},
    ],
    "t5": [
        {"architectures": ["T5ForConditionalGeneration"], "model_type": "t5", "d_model": 48, "d_ff": 80, "d_kv": 10, "num_heads": 4,
         "num_layers": 2, "num_decoder_layers": 3, "vocab_size": 101},
        {"architectures": ["MT5ForConditionalGeneration"], "model_type": "mt5", "d_model": 48, "d_ff": 80, "d_kv": 10, "num_heads": 4,
         "num_layers": 2, "vocab_size": 101, "feed_forward_proj": "gated-gelu"},
    ],
    "t5_encoder": [
        {"architectures": ["T5EncoderModel"], "model_type": "t5", "d_model": 48, "d_ff": 80, "d_kv": 10, "num_heads": 4, "num_layers": 2,
         "vocab_size": 101},
    ],
    "bart": [
        {"architectures": ["BartForConditionalGeneration"], "model_type": "bart", "d_model": 48, "encoder_layers": 2, "decoder_layers": 3,
         "encoder_attention_heads": 3, "decoder_attention_heads": 4, "encoder_ffn_dim": 80, "decoder_ffn_dim": 56, "vocab_size": 101,
         "max_position_embeddings": 256, "pad_token_id": 1},
        {"architectures": ["MarianMTModel"], "model_type": "marian", "d_model": 48, "encoder_layers": 2, "decoder_layers": 3,
         "encoder_attention_heads": 3, "decoder_attention_heads": 4, "encoder_ffn_dim": 80, "decoder_ffn_dim": 56, "vocab_size": 101,
         "max_position_embeddings": 256, "pad_token_id": 1},
    ],
    "whisper": [
        {"architectures": ["WhisperForConditionalGeneration"], "model_type": "whisper", "d_model": 48, "encoder_layers": 2,
         "decoder_layers": 3, "encoder_attention_heads": 3, "decoder_attention_heads": 4, "encoder_ffn_dim": 80, "decoder_ffn_dim": 56,
         "vocab_size": 101, "max_position_embeddings": 256, "pad_token_id": 1, "num_mel_bins": 20, "max_source_positions": 50,
         "max_target_positions": 64},
    ],
    "gemma3n": [
        {"architectures": ["Gemma3nForCausalLM"], "model_type": "gemma3n_text", "hidden_size": 48, "intermediate_size": 80,
         "num_hidden_layers": 3, "num_attention_heads": 4, "vocab_size": 101, "num_key_value_heads": 2, "head_dim": 20, "pad_token_id": 0,
         "vocab_size_per_layer_input": 90, "hidden_size_per_layer_input": 7, "sliding_window": 6, "num_kv_shared_layers": 0,
         "layer_types": ["sliding_attention", "sliding_attention", "full_attention"], "altup_num_inputs": 3, "laurel_rank": 5},
    ],
    "gemma4": [
        {"architectures": ["Gemma4ForCausalLM"], "model_type": "gemma4_text", "hidden_size": 48, "intermediate_size": 80,
         "num_hidden_layers": 3, "num_attention_heads": 4, "vocab_size": 101, "num_key_value_heads": 2, "head_dim": 20, "pad_token_id": 0,
         "vocab_size_per_layer_input": 90, "hidden_size_per_layer_input": 7, "sliding_window": 6, "num_kv_shared_layers": 0,
         "layer_types": ["sliding_attention", "sliding_attention", "full_attention"], "global_head_dim": 28},
    ],
    "clip_text": [
        {"architectures": ["CLIPTextModelWithProjection"], "model_type": "clip_text_model", "hidden_size": 36, "intermediate_size": 60,
         "num_hidden_layers": 2, "num_attention_heads": 3, "vocab_size": 101, "max_position_embeddings": 40, "projection_dim": 28,
         "eos_token_id": 2},
        {"architectures": ["CLIPTextModel"], "model_type": "clip_text_model", "hidden_size": 36, "intermediate_size": 60,
         "num_hidden_layers": 2, "num_attention_heads": 3, "vocab_size": 101, "max_position_embeddings": 40, "projection_dim": 28,
         "eos_token_id": 2},
    ],
    "siglip_text": [
        {"architectures": ["SiglipTextModel"], "model_type": "siglip_text_model", "hidden_size": 36, "intermediate_size": 60,
         "num_hidden_layers": 2, "num_attention_heads": 3, "vocab_size": 101, "max_position_embeddings": 40, "projection_dim": 28,
         "eos_token_id": 2, "projection_size": 48},
    ],
}
