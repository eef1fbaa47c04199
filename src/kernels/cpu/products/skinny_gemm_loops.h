// The loops of skinny_gemm.cpp, for one kind of vector. Included once for each, within a namespace that has
//
//   TPJRT_TARGET      the attribute of functions that use these instructions
//   Vector, kLanes    the vector type and its number of floats
//   kMost             rows for which the matrix is read once: sums of more would not fit into the registers
//   kMany             rows of the matrix that are added in one pass
//   zero() all(x) add(a, b) multiplied(a, b, c): a * b + c, load(x) store(x, v) floats(x) sum_of_lanes(v)
//   load(x, n) store(x, v, n) floats(x, n): the first n < kLanes; the others are zeros, and not touched

// Computes the products of `columns` consecutive columns with `rows` rows of x, into sums[row * width + column]. Each
// sum is split into parts, so that an addition need not wait for the one before.
template <int64_t rows, int64_t columns, int64_t parts, typename Element>
TPJRT_TARGET void dot(const Element* w, const float* x, int64_t depth, float* sums, int64_t width) {
  Vector sum[columns][rows][parts];
#pragma GCC unroll 2
  for (int64_t c = 0; c < columns; ++c) {
#pragma GCC unroll 8
    for (int64_t r = 0; r < rows; ++r) {
#pragma GCC unroll 8
      for (int64_t p = 0; p < parts; ++p) sum[c][r][p] = zero();
    }
  }
  int64_t i = 0;
  for (; i + parts * kLanes <= depth; i += parts * kLanes) {
#pragma GCC unroll 8
    for (int64_t p = 0; p < parts; ++p) {
      Vector weights[columns];
#pragma GCC unroll 2
      for (int64_t c = 0; c < columns; ++c) weights[c] = floats(w + c * depth + i + p * kLanes);
#pragma GCC unroll 8
      for (int64_t r = 0; r < rows; ++r) {
        const Vector factors = load(x + r * depth + i + p * kLanes);
#pragma GCC unroll 2
        for (int64_t c = 0; c < columns; ++c) sum[c][r][p] = multiplied(weights[c], factors, sum[c][r][p]);
      }
    }
  }
  for (; i < depth; i += kLanes) {
    const int64_t count = std::min(kLanes, depth - i);
#pragma GCC unroll 8
    for (int64_t r = 0; r < rows; ++r) {
      const Vector factors = load(x + r * depth + i, count);
#pragma GCC unroll 2
      for (int64_t c = 0; c < columns; ++c) {
        sum[c][r][0] = multiplied(floats(w + c * depth + i, count), factors, sum[c][r][0]);
      }
    }
  }
#pragma GCC unroll 2
  for (int64_t c = 0; c < columns; ++c) {
#pragma GCC unroll 8
    for (int64_t r = 0; r < rows; ++r) {
#pragma GCC unroll 8
      for (int64_t half = parts / 2; half > 0; half /= 2) {
#pragma GCC unroll 8
        for (int64_t p = 0; p < half; ++p) sum[c][r][p] = add(sum[c][r][p], sum[c][r][p + half]);
      }
      sums[r * width + c] = sum_of_lanes(sum[c][r][0]);
    }
  }
}

// Multiplies a transposed matrix, whose memory is read in order.
template <int64_t rows, int64_t columns, int64_t parts, typename Element>
TPJRT_TARGET void dots(const Element* w, const float* x, int64_t depth, int64_t width, float* sums) {
  int64_t column = 0;
  for (; column + columns <= width; column += columns) {
    dot<rows, columns, parts>(w + column * depth, x, depth, sums + column, width);
  }
  for (; column < width; ++column) dot<rows, 1, parts>(w + column * depth, x, depth, sums + column, width);
}

// Adds `many` rows of w, `stride` apart, each times its factor, to the sums of each row of x. The processor's
// prefetcher recognizes no pattern in so many rows, so the rows after them are prefetched to the L2 cache (24 GB/s
// for a core instead of 15).
template <int64_t many, typename Element>
TPJRT_TARGET void add_rows(const Element* w, int64_t stride, const float* x, int64_t rows, int64_t depth, int64_t width,
                           float* sums) {
  int64_t i = 0;
  for (; i + 2 * kLanes <= width; i += 2 * kLanes) {
    Vector line[many], other_line[many];
#pragma GCC unroll 8
    for (int64_t k = 0; k < many; ++k) {
      const Element* place = w + k * stride + i;
      _mm_prefetch(reinterpret_cast<const char*>(place + many * stride), _MM_HINT_T1);
      line[k] = floats(place);
      other_line[k] = floats(place + kLanes);
    }
    for (int64_t r = 0; r < rows; ++r) {
      float* place = sums + r * width + i;
      Vector sum = load(place), other = load(place + kLanes);
#pragma GCC unroll 8
      for (int64_t k = 0; k < many; ++k) {
        const Vector factor = all(x[r * depth + k]);
        sum = multiplied(line[k], factor, sum);
        other = multiplied(other_line[k], factor, other);
      }
      store(place, sum);
      store(place + kLanes, other);
    }
  }
  for (; i < width; i += kLanes) {
    const int64_t count = std::min(kLanes, width - i);
    for (int64_t r = 0; r < rows; ++r) {
      float* place = sums + r * width + i;
      Vector sum = load(place, count);
      for (int64_t k = 0; k < many; ++k) {
        sum = multiplied(floats(w + k * stride + i, count), all(x[r * depth + k]), sum);
      }
      store(place, sum, count);
    }
  }
}

// Computes `width` columns of one product, for at most kMost rows of x, which is padded with zeros up to kMost. The
// rows of a matrix that isn't transposed are `stride` apart.
template <typename Element>
void multiply(const Element* w, bool transposed, int64_t stride, const float* x, int64_t rows, int64_t depth,
              int64_t width, float* sums) {
  if (transposed) {
    if (rows == 1) return dots<1, 1, 8>(w, x, depth, width, sums);
    if (rows == 2) return dots<2, 1, 4>(w, x, depth, width, sums);
    if (rows <= 4) return dots<4, 2, kMost / 4>(w, x, depth, width, sums);
    return dots<kMost, 2, 1>(w, x, depth, width, sums);
  }
  std::fill(sums, sums + rows * width, 0.0F);
  int64_t k = 0;
  for (; k + kMany <= depth; k += kMany) add_rows<kMany>(w + k * stride, stride, x + k, rows, depth, width, sums);
  for (; k < depth; ++k) add_rows<1>(w + k * stride, stride, x + k, rows, depth, width, sums);
}
