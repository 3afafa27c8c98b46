"""Names of operators of PyTorch whose batching rules keep rows apart (batching_rules.py).

Views and operators on each number by itself (``torch.Tag.pointwise``) are safe too and not listed. A name comes into
a list when its rule was compared with single rows, for rows of all sizes and a row of NaN or infinity beside others.
"""

from __future__ import annotations

__all__ = ["SAFE", "SAFE_FLOATS", "SAFE_NUMBERS"]


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


SAFE = _names(
    """
    _log_softmax_backward_data _to_copy add all amax amin any arange argmax argmin argsort cat clone constant_pad_nd
    copy_ cummax cummin cumsum detach empty_like expand fill_ full_like gather index index_add index_copy index_put
    index_put_ index_select masked_fill masked_fill_ max min new_empty new_full new_ones new_zeros
    nll_loss2d_backward nll_loss2d_forward nll_loss_backward nll_loss_forward ones_like prod repeat scatter scatter_
    scatter_add scatter_add_ select_backward slice_backward sort stack sum take topk tril triu where zeros_like
    """
)
"""Operators, also on whole numbers, that use none of them as an index, or check every index in the row's own range."""

SAFE_FLOATS = _names(
    """
    _adaptive_avg_pool2d _adaptive_avg_pool2d_backward _adaptive_avg_pool3d _adaptive_avg_pool3d_backward
    _cdist_backward _cdist_forward _conj_physical _euclidean_dist _fft_c2c _fft_c2r _fft_r2c _fused_rms_norm
    _fused_rms_norm_backward _log_softmax _native_batch_norm_legit _native_batch_norm_legit_no_training
    _pdist_backward _pdist_forward _prelu_kernel _prelu_kernel_backward _safe_softmax _softmax
    _softmax_backward_data _trilinear _unsafe_view _upsample_nearest_exact1d _upsample_nearest_exact1d_backward
    _upsample_nearest_exact2d _upsample_nearest_exact2d_backward _upsample_nearest_exact3d
    _upsample_nearest_exact3d_backward _weight_norm_interface _weight_norm_interface_backward addbmm addmm addmv
    addr alias_copy aminmax avg_pool2d avg_pool2d_backward avg_pool3d avg_pool3d_backward baddbmm
    binary_cross_entropy binary_cross_entropy_backward binary_cross_entropy_with_logits block_diag bmm bucketize
    channel_shuffle col2im complex convolution convolution_backward count_nonzero cumprod diag_embed
    diagonal_backward diagonal_copy diagonal_scatter dist dot elu_backward expand_copy flip gelu_backward glu
    glu_backward hardshrink_backward hardsigmoid_backward hardswish hardswish_ hardswish_backward hardtanh_backward
    huber_loss huber_loss_backward im2col kthvalue leaky_relu_backward linalg_cross linalg_vector_norm
    log_sigmoid_backward log_sigmoid_forward logcumsumexp logit_backward logsumexp mean median mish_backward mm mode
    mse_loss mse_loss_backward mv nanmedian nansum narrow_copy native_batch_norm native_batch_norm_backward
    native_group_norm native_group_norm_backward native_layer_norm native_layer_norm_backward norm permute_copy
    pixel_shuffle pixel_unshuffle polar reflection_pad1d reflection_pad1d_backward reflection_pad2d
    reflection_pad2d_backward reflection_pad3d reflection_pad3d_backward renorm replication_pad1d
    replication_pad1d_backward replication_pad2d replication_pad2d_backward replication_pad3d
    replication_pad3d_backward roll rot90 searchsorted select_scatter sigmoid_backward silu_backward slice_scatter
    smooth_l1_loss smooth_l1_loss_backward soft_margin_loss soft_margin_loss_backward softplus_backward
    softshrink_backward split_with_sizes_copy squeeze_ squeeze_copy std std_mean t_ t_copy tanh_backward
    threshold_backward trace transpose_ transpose_copy tril_ triu_ unbind_copy unfold_backward unfold_copy
    unsafe_split unsafe_split_with_sizes unsqueeze_ unsqueeze_copy upsample_bicubic2d upsample_bicubic2d_backward
    upsample_bilinear2d upsample_bilinear2d_backward upsample_linear1d upsample_linear1d_backward upsample_nearest1d
    upsample_nearest1d_backward upsample_nearest2d upsample_nearest2d_backward upsample_nearest3d
    upsample_nearest3d_backward upsample_trilinear3d upsample_trilinear3d_backward var var_mean vdot view_copy zero
    zero_
    """
)
"""Operators on floating numbers."""

SAFE_NUMBERS = _names(
    """
    _to_copy _unsafe_view addmm arange binary_cross_entropy binary_cross_entropy_backward
    binary_cross_entropy_with_logits clone copy_ detach diag_embed dist dot empty_like expand expand_copy fill_
    full_like huber_loss huber_loss_backward index_put index_put_ linalg_vector_norm logit_backward masked_fill
    masked_fill_ mean mse_loss mse_loss_backward new_empty new_full new_ones new_zeros nll_loss2d_backward
    nll_loss2d_forward nll_loss_backward nll_loss_forward ones_like repeat select_backward sigmoid_backward
    silu_backward smooth_l1_loss smooth_l1_loss_backward soft_margin_loss soft_margin_loss_backward
    softplus_backward stack sum tanh_backward threshold_backward unsqueeze_ unsqueeze_copy view_copy where zero
    zero_ zeros_like
    """
)
"""Those of both lists that may take a number without a dimension: they have none to mistake for that of the rows."""
