// The table of lowering rules, and the list of families.
#include "ops/rule/rules.h"

#include "ops/claims/claims.h"

namespace tpjrt::ops {

namespace {

// Adds ops that a compiler or a kernel may know as one thing, and that PyTorch or python/torch_pjrt/decompositions
// decomposes.
void add_decomposed_composites(RuleTable& rules) {
  for (const char* name : {
           "aten::_fused_rms_norm",
           "aten::_fused_rms_norm_backward",
           "aten::_native_multi_head_attention",
           "aten::_thnn_fused_gru_cell",
           "aten::_thnn_fused_gru_cell_backward",
           "aten::_thnn_fused_lstm_cell",
           "aten::_thnn_fused_lstm_cell_backward_impl",
           "aten::_transformer_encoder_layer_fwd",
           "aten::_weight_norm_interface",
           "aten::_weight_norm_interface_backward",
           "aten::grid_sampler_2d",
           "aten::grid_sampler_2d_backward",
           "aten::grid_sampler_3d",
           "aten::grid_sampler_3d_backward",
           "aten::im2col",
           "aten::col2im",
           "aten::pixel_shuffle",
           "aten::pixel_unshuffle",
           "torch_pjrt::fused_adagrad_",
           "torch_pjrt::fused_adam_",
           "torch_pjrt::fused_adamw_",
           "torch_pjrt::fused_sgd_",
           "torch_pjrt::lstm_layer",
           "torch_pjrt::lstm_layer_backward",
           "torch_pjrt::recurrent_layer",
           "torch_pjrt::recurrent_layer_backward",
       }) {
    rules.add_composite(name);
  }
}

// Adds ops that XLA:CPU computes slowly even when they are decomposed.
void add_decomposed_by_aten(RuleTable& rules) {
  for (const char* name : {"aten::_ctc_loss", "aten::_ctc_loss_backward", "aten::linalg_lstsq",
                           "torch_pjrt::lstm_layer", "torch_pjrt::lstm_layer_backward"}) {
    rules.add_by_aten(name, kAlwaysByAten);
  }
  for (const char* name : {"aten::segment_reduce", "aten::_segment_reduce_backward", "aten::grid_sampler_3d",
                           "aten::grid_sampler_3d_backward", "aten::fractional_max_pool2d_backward",
                           "aten::fractional_max_pool3d_backward", "aten::isin.Tensor_Tensor"}) {
    rules.add_by_aten(name);
  }
  rules.add_by_aten("aten::repeat_interleave.Tensor", kPickedByAten);
  // The kernel reads 16 bfloat16 numbers at a time, beyond the end of rows of other lengths.
  rules.add_by_aten("aten::_weight_int8pack_mm", {.aten_from = 1, .aten_work = [](const auto& of) {
                                                    const bool reads_beyond =
                                                        of[0]->dtype == c10::kBFloat16 && of[0]->sizes[1] % 16 != 0;
                                                    return int64_t{!reads_beyond};
                                                  }});
}

// Adds layers of recurrent networks. XLA:CPU takes ten times as long as MKL for a step's product; where the product
// is small, ATen's calls take longer than XLA's loop. The threshold counts a step's multiplications for each of its
// gates.
void add_recurrent_by_aten(RuleTable& rules) {
  const int64_t least = least_work(Heavy::kRecurrentLayer);
  rules.add_by_aten("torch_pjrt::recurrent_layer", {.aten_from = least, .aten_work = [](const auto& of) {
                                                      return of[1]->rank() == 2 ? of[1]->numel() * of[1]->sizes[1]
                                                                                : 0;  // hx: (batch, hidden)
                                                    }});
  rules.add_by_aten("torch_pjrt::recurrent_layer_backward",
                    {.aten_from = least, .aten_work = [](const auto& of) {
                       const auto& sizes = of[0]->sizes;  // (length, batch, hidden)
                       return sizes.size() == 3 ? sizes[1] * sizes[2] * sizes[2] : 0;
                     }});
}

}  // namespace

Kinds kind_of(ElementType element) {
  if (element == ElementType::kPred) return kBools;
  if (hlo::is_integer(element)) return kIntegers;
  return hlo::is_complex(element) ? kComplexes : kFloats;
}

void RuleTable::add(std::string_view name, Rule rule, Platforms platforms, uint8_t kinds) {
  if (!rules_.emplace(name, Entry{rule, platforms, kinds}).second) {
    throw std::logic_error("two lowering rules for " + std::string(name));
  }
}

const RuleTable::Entry* RuleTable::find(std::string_view name) const {
  auto found = rules_.find(std::string(name));
  return found == rules_.end() ? nullptr : &found->second;
}

const Platforms* RuleTable::platforms_of(std::string_view name) const {
  if (const Entry* entry = find(name)) return &entry->platforms;
  const auto found = by_aten_.find(std::string(name));
  return found == by_aten_.end() ? nullptr : &found->second;
}

Values RuleTable::emit(const Entry& entry, Emit& e, const Call& c) {
  for (const graph::TypePtr result : c.results) {
    if (!result) continue;
    if (!(entry.kinds & kind_of(e.element(*result)))) {
      throw Mistake("[" + c.name + "] there is no kernel for " + to_string(*result));
    }
    break;
  }
  Values values = entry.on(e.target())(e, c);
  auto wrong = [&](const std::string& what) { throw hlo::Error("[" + c.name + "] the lowering rule gives " + what); };
  if (values.size() != c.results.size()) {
    wrong(std::to_string(values.size()) + " results, expected " + std::to_string(c.results.size()));
  }
  for (size_t i = 0; i < values.size(); ++i) {
    if (!c.results[i] || !values[i]) {
      if (c.results[i]) wrong("nothing for result " + std::to_string(i) + ", expected " + to_string(*c.results[i]));
      values[i] = Value{};
      continue;
    }
    if (values[i].type != e.type_of(*c.results[i])) {
      wrong(hlo::to_string(values[i].type) + " for result " + std::to_string(i) + ", expected " +
            hlo::to_string(e.type_of(*c.results[i])));
    }
  }
  return values;
}

const RuleTable& RuleTable::instance() {
  static const RuleTable table = [] {
    RuleTable rules;
    add_view_rules(rules);
    add_pointwise_rules(rules);
    add_activation_rules(rules);
    add_special_rules(rules);
    add_traced_rules(rules);
    add_polynomial_rules(rules);
    add_incomplete_gamma_rules(rules);
    add_rejection_rules(rules);
    add_reduction_rules(rules);
    add_matmul_rules(rules);
    add_scaled_mm_rules(rules);
    add_linalg_rules(rules);
    add_reflection_rules(rules);
    add_elimination_rules(rules);
    add_rotation_rules(rules);
    add_exponential_rules(rules);
    add_fft_rules(rules);
    add_convolution_rules(rules);
    add_pooling_rules(rules);
    add_normalization_rules(rules);
    add_indexing_rules(rules);
    add_binning_rules(rules);
    add_embedding_rules(rules);
    add_shape_rules(rules);
    add_padding_rules(rules);
    add_sorting_rules(rules);
    add_factory_rules(rules);
    add_random_rules(rules);
    add_loss_rules(rules);
    add_attention_rules(rules);
    add_assertion_rules(rules);
    add_scaling_rules(rules);
    add_resampling_rules(rules);
    add_collective_rules(rules);
    add_decomposed_composites(rules);
    add_recurrent_by_aten(rules);
    add_decomposed_by_aten(rules);
    return rules;
  }();
  return table;
}

}  // namespace tpjrt::ops
