"""The family of a kernel, told by its name: what sort of work it does, whoever wrote it.

Names are those of CUDA and HIP libraries (cuBLAS, cuBLASLt, cuDNN, CUTLASS, Tensile, Composable Kernel, AITER, MIOpen), of
PyTorch's own kernels, Triton and its compilers, flash attention, vLLM, and XLA's fusions. A name that says nothing, as most
kernels of simulation codes, is "other": nothing is guessed from what it might do.
"""

from __future__ import annotations

import re
from functools import lru_cache

# The first pattern that a name holds decides, so what is more special stands first. Names are made lower case first.
_RULES: tuple[tuple[str, str], ...] = (
    # named after the operator that they are, with the type behind (MTIA)
    ("gemm", r"^(aten::)?(fc|addmm|linear)[\w.]*-dtype_"),
    ("copy", r"^(aten::)?(cat|copy)[\w.]*-dtype_"),
    ("gather", r"^(aten::)?index[\w.]*-dtype_"),
    ("reduction", r"^(aten::)?(mean|sum|max_dim|min_dim|vector_norm)[\w.]*-dtype_"),
    (
        "elementwise",
        r"^(aten::)?(add|sub|mul|div|divide|neg|reciprocal|r?sqrt|log\d*|exp|tanh|clip|where|eq|ne|gt|ge|lt|le)(_\w+)?(\.\w+)?-dtype_",
    ),
    ("elementwise", r"^(threshold_backward|bce_with_logits|\w+_mul_const)-dtype_"),
    # communication
    ("collective", r"\b(nccl|rccl|msccl|oneccl|hccl)|nccl(dev)?kernel|msccl(pp)?_?kernel|nvshmem\w*_(barrier|reduce|broadcast|alltoall)"),
    ("collective", r"cross_device_reduce|custom_all_?reduce|quick_?reduce|(one|two)_shot_all_reduce|multimem_(all|one|two)|\bdeep_ep::"),
    ("collective", r"all_?reduce_?(fusion|kernel|sum)|^(all-(reduce|gather|to-all)|reduce-scatter|collective-permute)"),
    # what a compiler wrote: the prefix says the sort of loop, the rest which operators were fused into it
    ("attention", r"triton_tem_\w*(attention|flex)"),
    ("convolution", r"triton_tem_\w*conv"),
    ("gemm", r"triton_tem_"),
    ("normalisation", r"triton_(red|per)_\w*(_norm|rms|rsqrt|var_mean)"),
    ("softmax", r"triton_(red|per)_\w*softmax"),
    ("gather", r"triton_\w*embedding"),
    ("reduction", r"triton_(red|per|split_scan)_"),
    ("elementwise", r"triton_(poi|for)_"),
    # optimisers
    ("optimiser", r"multi_tensor_apply.*(adam|sgd|lamb|adagrad|rmsprop|lion|foreach_(add|addc|lerp|mul|div|sqrt)|l2norm|scale|axpby)"),
    ("optimiser", r"fused_?(adam|sgd|lamb|lion|adagrad)|rowwise_adagrad|(^|[^a-z])(adamw?|lamb|muon)_(kernel|update|functor)"),
    ("elementwise", r"multi_tensor_apply|foreach_"),
    # attention
    ("attention", r"flash_?(fwd|bwd|attn|attention|infer|mla|decod)|flash::|fmha|\bf?mha_|attn|attention|sdpa|mla_(decode|prefill|reduce)"),
    ("attention", r"batch(prefill|decode)with|persistentvariablelengthmergestates|mergestate|splitkv"),
    ("attention", r"fused_?mla|pa_(fwd|decode)|_fwd_(grouped_)?kernel_stage\d"),
    # positions, keys and values on their way to attention
    ("elementwise", r"rotary|(^|[^a-z])rope(_|\d|kernel|$)|rotate_half"),
    ("copy", r"reshape_and_cache|concat_and_cache|copy_blocks|swap_blocks|append_?paged_?kv|kv_?cache"),
    # a look-up (an embedding, an index) reads or writes rows; a router sorts tokens by expert
    ("gather", r"embedding|index_?select|gather|scatter|index_?(put|add|copy|fill)|index_(elementwise_)?kernel|indexselect|indexfunc"),
    ("gather", r"take_(along|kernel)|bounds_check_indices"),
    ("sort", r"topk|top_k|radix|bitonic|merge_?sort|\bsort|_sort|sortpairs|moe_align|segmented_?sort|histogram|routing_|searchsorted"),
    ("scan", r"scan_?kernel|device_?scan|cumsum|cumprod|scan_?by_?key|lookback_scan|selectif|partition_(config|kernel)|compact_?init"),
    ("scan", r"select_if|deviceselect|unique_by_key|tensor_kernel_scan|scan_(inner|outer)|selective_scan|chunk_scan|chunk_state|ssd_"),
    # normalisation and softmax
    ("reduction", r"vector_norm"),
    ("softmax", r"softmax|cross_?entropy|logsumexp|nll_loss"),
    ("normalisation", r"layer_?norm|rms_?norm|batch_?norm|group_?norm|instance_?norm|rowwisemoments|gammabeta|\bbn_(fw|bw)|norm_(fwd|bwd)"),
    ("normalisation", r"normalize_kernel|norm_kernel|computefusedparams|computeinternalgradients|cudnn::bn_|miopenbatchnorm|_norm_"),
    # convolution, before the matrix products it is made of
    (
        "convolution",
        r"conv(olve|olution|\d?d)|_conv_|conv_?(fwd|bwd|depthwise|kernel)|implicit_(conv|gemm)|implicit_convolve|scudnn|winograd",
    ),
    ("convolution", r"(fprop|dgrad|wgrad)|igemm_(fwd|bwd|wrw)|miopensp3|im2col|col2im|vol2col|col2vol|im2d2col"),
    (
        "convolution",
        r"cudnn::(cnn|detail|winograd)|computeoffsets|computewgrad|computebogradoffsets|fft2d|xdlops_(fwd|bwd|wrw)|gridwise_conv",
    ),
    # matrix products, and the vector products that live in the same libraries; bias and activation that cuBLASLt applies afterwards
    ("elementwise", r"\bepilogue::impl::"),
    ("reduction", r"^(void )?(dot_kernel|reduce_1block_kernel)"),
    ("gemm", r"(?<!fb)gemm|cijk_|nvjet|\bgemv|gemv|cublaslt|matmul|_mm_|\bmm_kernel|\bbmm_|splitkreduce|xmma_|hipblaslt|ck_tile::.*gemm"),
    (
        "gemm",
        r"cutlass_\d+_|cublas.*(syrk|trsm|symm|trmm)|(syrk|trsm|trmm|symm)_|(fused|grouped)_moe|fused_experts|machete|marlin|exllama|[bs]gmv_|lora_(shrink|expand)",
    ),
    ("gemm", r"wvsplitk|llgemm|moe_(fwd|gemm|kernel|stage)|bitsandbytes|kgemm|gptq|awq_|mfma_(gemm|bf16)|dot_?product_kernel_mma"),
    ("gemm", r"cutlass::(device_)?kernel2?\b.*(mma|tensorop)|postprocess_?gemm|scale_?c_?kernel|tensile|^(custom_)?(fusion_)?dot(_|\d|$)"),
    # pooling and resampling: each value from its neighbours
    ("pooling", r"_pool(?!ed)|pool(ing)?[_\d]|pool_?(fw|bw)|upsample|interpolat|grid_sample|roi_align|nearest\dd|bilinear|bicubic"),
    # moving and setting
    ("memset", r"fillfunctor|memset|\bfill_|set_?zero|zero_?fill|setoutputzero|\bones_|fillbuffer"),
    (
        "copy",
        r"memcpy|copy_async|direct_copy|copy_kernel|catarray|concat|transpose|nchwto|nhwcto|nchw2nhwc|nhwc2nchw|permute|copybuffer|copy_device",
    ),
    (
        "copy",
        r"cast_?(copy|transpose)|split_?kernel|unfold|stack_kernel|roll_(cuda_)?kernel|flip_kernel|reflection_pad|constant_?pad|\bpad_",
    ),
    ("copy", r"^(copy|slice|dynamic[-_](update[-_])?slice|transpose)(_fusion)?([._]\d+)*$|tensor_?transform|transformkernel"),
    # reductions
    ("reduction", r"reduce|reduction|argmax|argmin|sum_functor|meanops|\b[sdcz]?(asum|nrm2)|vector_norm|_sum_(rows|bitmatrix)"),
    # random numbers and everything that goes through values one by one
    ("random", r"distribution_|philox|curand|hiprand|dropout|rand(om|int|perm|n)?_kernel|multinomial|bernoulli|exponential_kernel"),
    (
        "elementwise",
        r"elementwise|pointwise|unary|binary|cudafunctor|optensor|op_tensor|activation|act_and_mul|silu|gelu|relu(?!de)|swiglu|sigmoid",
    ),
    (
        "elementwise",
        r"where_kernel|masked_?fill|arange|linspace|clamp|tril|triu|triangle|compare|dequantiz|quantiz|quant_(\w+_)?kernel|scaled_fp8",
    ),
    ("elementwise", r"addcmul|addcdiv|axpy|scal_kernel|tensor_?op|subtensorop|cast_?kernel|convert_kernel|compute_slot_mapping"),
    (
        "elementwise",
        r"\bkernelpointwise|transform_config|device_transform|bias_(add|act)|add_bias|nan_to_num|check_finite|amp_(update|non_finite)",
    ),
    ("elementwise", r"unscale|thrust::\S*(parallel_for|for_each)|transform_kernel"),
    # XLA: what is not named by its hero is a fused loop
    ("reduction", r"^(input_)?reduce_fusion"),
    ("copy", r"^input_(transpose|concatenate|slice)\w*fusion|concatenate_fusion|dynamic_update_slice_fusion"),
    ("gather", r"^input_scatter_fusion"),
    ("elementwise", r"^(\w+_)?fusion([._]\d+)*$|^wrapped_[a-z_]+([._]\d+)*$"),
    ("triton", r"triton"),
)
_PATTERNS = tuple((name, re.compile(pattern)) for name, pattern in _RULES)

FAMILIES = (*dict.fromkeys(name for name, _ in _RULES), "other")
_LONGEST = 2000  # what a name says of its family, it says early


@lru_cache(maxsize=65536)
def family(name: str) -> str:
    """Return a kernel's family, one of `FAMILIES`; "other" where the name doesn't tell.

    >>> family("ampere_bf16_s16816gemm_bf16_128x64_ldg8_f2f_stages_32x3_nn"), family("Cijk_Alik_Bljk_BBS_BH_MT256x128x64_MI16x16x16x1")
    ('gemm', 'gemm')
    >>> family("sm80_xmma_fprop_implicit_gemm_bf16bf16_bf16f32_f32_nhwckrsc_nhwc"), family("PdV_kernel(int, double*)")
    ('convolution', 'other')
    """
    plain = name[:_LONGEST].lower()
    return next((found for found, pattern in _PATTERNS if pattern.search(plain)), "other")
