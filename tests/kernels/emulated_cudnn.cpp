// cuDNN's fused attention on the CPU, as XLA calls it: operands and results have the call's layouts, and both half
// types work.
//
// Written from XLA's documentation of its custom calls, not from the kernel that makes them. Operands of the forward
// are q, k, v and a bias; of the backward q, k, v, the rows' sums, the output's gradient, a bias and the output.
// Results of the forward are the output and the rows' sums; of the backward the gradients of q, k, v and, if requested,
// of the bias. The last result is scratch memory.
#include <xla/ffi/api/ffi.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <vector>

namespace ffi = xla::ffi;

namespace {

struct Sizes {
  int64_t batch, heads, tokens, width;
};

// Indexes by (batch, heads, tokens, width), whatever the position of the heads in the call.
struct Numbers {
  ffi::AnyBuffer buffer;
  bool heads_third;
  Sizes sizes;

  int64_t at(int64_t b, int64_t n, int64_t t, int64_t d) const {
    const int64_t row =
        heads_third ? (b * sizes.tokens + t) * sizes.heads + n : (b * sizes.heads + n) * sizes.tokens + t;
    return row * sizes.width + d;
  }
};

float read(const ffi::AnyBuffer& buffer, int64_t at) {
  if (buffer.element_type() == ffi::F32) return static_cast<const float*>(buffer.untyped_data())[at];
  const uint16_t bits = static_cast<const uint16_t*>(buffer.untyped_data())[at];
  if (buffer.element_type() == ffi::BF16) return std::bit_cast<float>(uint32_t{bits} << 16);
  return static_cast<float>(std::bit_cast<_Float16>(bits));
}

void write(const ffi::AnyBuffer& buffer, int64_t at, float x) {
  if (buffer.element_type() == ffi::F32) {
    static_cast<float*>(buffer.untyped_data())[at] = x;
    return;
  }
  auto& to = static_cast<uint16_t*>(buffer.untyped_data())[at];
  if (buffer.element_type() == ffi::BF16) {
    const auto bits = std::bit_cast<uint32_t>(x);
    to = static_cast<uint16_t>((bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
  } else {
    to = std::bit_cast<uint16_t>(static_cast<_Float16>(x));
  }
}

struct Call {
  Numbers q, k, v;
  const ffi::AnyBuffer* bias = nullptr;
  double scale;
  bool causal;

  int64_t bias_at(int64_t b, int64_t n, int64_t t, int64_t s) const {
    const auto dims = bias->dimensions();
    const int64_t row = ((dims[0] == 1 ? 0 : b) * dims[1] + (dims[1] == 1 ? 0 : n)) * dims[2] + t;
    return row * dims[3] + s;
  }

  std::vector<double> scores(int64_t b, int64_t n, int64_t t) const {
    const int64_t shared = n / (q.sizes.heads / k.sizes.heads);
    std::vector<double> row(static_cast<size_t>(k.sizes.tokens));
    for (int64_t s = 0; s < k.sizes.tokens; ++s) {
      double sum = 0;
      for (int64_t d = 0; d < q.sizes.width; ++d) {
        sum += read(q.buffer, q.at(b, n, t, d)) * read(k.buffer, k.at(b, shared, s, d));
      }
      sum = sum * scale + (bias ? read(*bias, bias_at(b, n, t, s)) : 0);
      row[static_cast<size_t>(s)] = causal && s > t ? -INFINITY : sum;
    }
    return row;
  }
};

ffi::Error attention(ffi::RemainingArgs operands, ffi::RemainingRets results, double scale, int64_t causal,
                     int64_t heads_third, int64_t has_bias, int64_t backward) {
  const auto numbers = [&](const ffi::AnyBuffer& buffer) {
    const auto dims = buffer.dimensions();
    return Numbers{buffer, heads_third != 0,
                   heads_third ? Sizes{dims[0], dims[2], dims[1], dims[3]} : Sizes{dims[0], dims[1], dims[2], dims[3]}};
  };
  // A result is (batch, heads, tokens, width) in the operands' layout.
  const auto result = [&](size_t i) {
    const ffi::AnyBuffer buffer = **results.get<ffi::AnyBuffer>(i);
    const auto dims = buffer.dimensions();
    return Numbers{buffer, heads_third != 0, {dims[0], dims[1], dims[2], dims[3]}};
  };
  Call call{numbers(*operands.get<ffi::AnyBuffer>(0)),
            numbers(*operands.get<ffi::AnyBuffer>(1)),
            numbers(*operands.get<ffi::AnyBuffer>(2)),
            nullptr,
            scale,
            causal != 0};
  const ffi::AnyBuffer bias = *operands.get<ffi::AnyBuffer>(!has_bias ? 0 : backward ? 5 : 3);
  if (has_bias) call.bias = &bias;
  const Sizes& q = call.q.sizes;
  const Sizes& k = call.k.sizes;
  const auto each_row = [&](auto&& visit) {
    for (int64_t b = 0; b < q.batch; ++b) {
      for (int64_t n = 0; n < q.heads; ++n) {
        for (int64_t t = 0; t < q.tokens; ++t) visit(b, n, t, n / (q.heads / k.heads));
      }
    }
  };
  if (!backward) {
    const Numbers out = result(0);
    const ffi::AnyBuffer sums = **results.get<ffi::AnyBuffer>(1);
    each_row([&](int64_t b, int64_t n, int64_t t, int64_t shared) {
      const std::vector<double> row = call.scores(b, n, t);
      const double most = *std::max_element(row.begin(), row.end());
      double sum = 0;
      for (const double x : row) sum += std::exp(x - most);
      for (int64_t d = 0; d < q.width; ++d) {
        double y = 0;
        for (int64_t s = 0; s < k.tokens; ++s) {
          y += std::exp(row[static_cast<size_t>(s)] - most) / sum * read(call.v.buffer, call.v.at(b, shared, s, d));
        }
        write(out.buffer, out.at(b, n, t, d), static_cast<float>(y));
      }
      write(sums, (b * q.heads + n) * q.tokens + t, static_cast<float>(most + std::log(sum)));
    });
    return ffi::Error::Success();
  }
  const ffi::AnyBuffer sums = *operands.get<ffi::AnyBuffer>(3);
  const Numbers dy = numbers(*operands.get<ffi::AnyBuffer>(4)),
                y = numbers(*operands.get<ffi::AnyBuffer>(has_bias ? 6 : 5));
  const bool wants_bias = results.size() == 5;
  const std::vector<Numbers> grads{result(0), result(1), result(2)};
  std::vector<std::vector<double>> all;
  for (const Numbers& grad : grads) all.emplace_back(grad.buffer.element_count());
  std::vector<double> of_bias(wants_bias ? bias.element_count() : 0);
  each_row([&](int64_t b, int64_t n, int64_t t, int64_t shared) {
    const std::vector<double> row = call.scores(b, n, t);
    const double sum = read(sums, (b * q.heads + n) * q.tokens + t);
    double total = 0;
    for (int64_t d = 0; d < q.width; ++d)
      total += read(dy.buffer, dy.at(b, n, t, d)) * read(y.buffer, y.at(b, n, t, d));
    for (int64_t s = 0; s < k.tokens; ++s) {
      const double p = std::exp(row[static_cast<size_t>(s)] - sum);
      double dp = 0;
      for (int64_t d = 0; d < q.width; ++d) {
        dp += read(dy.buffer, dy.at(b, n, t, d)) * read(call.v.buffer, call.v.at(b, shared, s, d));
      }
      const double ds = p * (dp - total);
      if (wants_bias) of_bias[static_cast<size_t>(call.bias_at(b, n, t, s))] += ds;
      for (int64_t d = 0; d < q.width; ++d) {
        all[0][static_cast<size_t>(grads[0].at(b, n, t, d))] +=
            ds * scale * read(call.k.buffer, call.k.at(b, shared, s, d));
        all[1][static_cast<size_t>(grads[1].at(b, shared, s, d))] +=
            ds * scale * read(call.q.buffer, call.q.at(b, n, t, d));
        all[2][static_cast<size_t>(grads[2].at(b, shared, s, d))] += p * read(dy.buffer, dy.at(b, n, t, d));
      }
    }
  });
  for (size_t i = 0; i < 3; ++i) {
    for (size_t at = 0; at < all[i].size(); ++at)
      write(grads[i].buffer, static_cast<int64_t>(at), static_cast<float>(all[i][at]));
  }
  for (size_t at = 0; at < of_bias.size(); ++at) {
    write(**results.get<ffi::AnyBuffer>(3), static_cast<int64_t>(at), static_cast<float>(of_bias[at]));
  }
  return ffi::Error::Success();
}

}  // namespace

XLA_FFI_DEFINE_HANDLER_SYMBOL(emulated_cudnn, attention,
                              ffi::Ffi::Bind()
                                  .RemainingArgs()
                                  .RemainingRets()
                                  .Attr<double>("scale")
                                  .Attr<int64_t>("causal")
                                  .Attr<int64_t>("heads_third")
                                  .Attr<int64_t>("has_bias")
                                  .Attr<int64_t>("backward"));
