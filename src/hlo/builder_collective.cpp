// Ops in which replicas of a program communicate.
#include "hlo/builder_text.h"

namespace tpjrt::hlo {

namespace {

// Formats "replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>".
std::string groups_text(std::string_view op, const Builder::Groups& groups) {
  check(!groups.empty(), op, "has no groups");
  std::string rows;
  for (const Dims& group : groups) {
    check(group.size() == groups[0].size(), op, "has groups of different sizes");
    rows += cat(rows.empty() ? "" : ", ", group);
  }
  return cat("replica_groups = dense<[", rows, "]> : tensor<", groups.size(), "x", groups[0].size(), "xi64>");
}

int64_t size_of(const Builder::Groups& groups) { return static_cast<int64_t>(groups[0].size()); }

// Returns the region of a reduction among replicas, which applies `op` to two elements.
template <class Impl>
std::string joining(Builder& b, Impl& impl, std::string_view reduction, std::string_view op, ElementType element) {
  const Type scalar{element, {}};
  return impl.region(
      reduction, {scalar, scalar}, [&](const Values& pair) { return Values{b.binary(op, pair[0], pair[1])}; },
      std::vector<Type>{scalar});
}

}  // namespace

Value Builder::replica_id() { return impl_->emit(Type{ElementType::kU32, {}}, "stablehlo.replica_id : tensor<ui32>"); }

Value Builder::all_reduce(std::string_view op, const Value& x, const Groups& groups) {
  const std::string body = joining(*this, *impl_, "all_reduce", op, x.element());
  return impl_->emit(x.type, "\"stablehlo.all_reduce\"(", impl_->use("all_reduce", x), ") (", body, ") {",
                     groups_text("all_reduce", groups), "} : ", arrow({&x.type}, x.type));
}

Value Builder::all_gather(const Value& x, int64_t dimension, const Groups& groups) {
  check_dimensions("all_gather", "dimension", {dimension}, x.rank());
  const std::string rows = groups_text("all_gather", groups);
  Type result = x.type;
  result.dims[static_cast<size_t>(dimension)] *= size_of(groups);
  return impl_->emit(result, "\"stablehlo.all_gather\"(", impl_->use("all_gather", x),
                     ") {all_gather_dim = ", dimension, " : i64, ", rows, "} : ", arrow({&x.type}, result));
}

Value Builder::all_to_all(const Value& x, int64_t dimension, const Groups& groups) {
  check_dimensions("all_to_all", "dimension", {dimension}, x.rank());
  const std::string rows = groups_text("all_to_all", groups);
  check(x.dim(dimension) % size_of(groups) == 0, "all_to_all", "dimension of size ", x.dim(dimension), " in ",
        size_of(groups), " parts");
  return impl_->emit(x.type, "\"stablehlo.all_to_all\"(", impl_->use("all_to_all", x),
                     ") {split_dimension = ", dimension, " : i64, concat_dimension = ", dimension,
                     " : i64, split_count = ", size_of(groups), " : i64, ", rows, "} : ", arrow({&x.type}, x.type));
}

Value Builder::reduce_scatter(std::string_view op, const Value& x, int64_t dimension, const Groups& groups) {
  check_dimensions("reduce_scatter", "dimension", {dimension}, x.rank());
  const std::string rows = groups_text("reduce_scatter", groups);
  check(x.dim(dimension) % size_of(groups) == 0, "reduce_scatter", "dimension of size ", x.dim(dimension), " in ",
        size_of(groups), " parts");
  Type result = x.type;
  result.dims[static_cast<size_t>(dimension)] /= size_of(groups);
  const std::string body = joining(*this, *impl_, "reduce_scatter", op, x.element());
  return impl_->emit(result, "\"stablehlo.reduce_scatter\"(", impl_->use("reduce_scatter", x), ") (", body,
                     ") {scatter_dimension = ", dimension, " : i64, ", rows, "} : ", arrow({&x.type}, result));
}

}  // namespace tpjrt::hlo
