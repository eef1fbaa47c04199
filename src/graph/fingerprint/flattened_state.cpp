// Assigns tensors to flattened states, and numbers a program's arguments and results.
#include "graph/fingerprint/flattened_state.h"

#include <algorithm>
#include <utility>

#include "graph/fingerprint/walk.h"

namespace tpjrt::graph {

namespace {

constexpr int64_t kMostBytes = 512;
constexpr size_t kFewest = 16;     // fewer tensors are faster on their own
constexpr size_t kLookedBack = 8;  // recent flattened states that may have room left

std::vector<int64_t> numbered(size_t count, const std::vector<FlattenedState>& states,
                              uint32_t FlattenedState::Member::* which) {
  std::vector<int64_t> places(count, 0);
  for (const FlattenedState& state : states) {
    for (const FlattenedState::Member& member : state.members) places[member.*which] = -1;
  }
  int64_t next = 0;
  for (int64_t& place : places) {
    if (place == 0) place = next++;
  }
  return places;
}

}  // namespace

void flatten_state(Walk& walk, const std::vector<char>& may_be_flattened) {
  const auto bytes = [](const FlattenedState& state) {
    return state.elements * static_cast<int64_t>(elementSize(state.dtype));
  };
  const auto fits = [&](size_t alias) {
    const auto size = static_cast<int64_t>(walk.leaves[walk.aliases[alias].leaf]->leaf_type->nbytes());
    return may_be_flattened[alias] && size > 0 && 2 * size <= kMostBytes;  // room for two of its size
  };
  std::vector<char> chosen(walk.aliases.size());
  for (size_t i = 0; i < chosen.size(); ++i) chosen[i] = static_cast<char>(fits(i));
  if (static_cast<size_t>(std::count(chosen.begin(), chosen.end(), 1)) < kFewest) return;
  std::vector<Walk::Alias> others;
  for (size_t i = 0; i < chosen.size(); ++i) {
    const Walk::Alias& alias = walk.aliases[i];
    if (!chosen[i]) {
      others.push_back(alias);
      continue;
    }
    const TensorType& type = *walk.leaves[alias.leaf]->leaf_type;
    const auto size = static_cast<int64_t>(type.nbytes());
    const auto newest = walk.states.end() - static_cast<int64_t>(std::min(walk.states.size(), kLookedBack));
    auto with_room = std::find_if(newest, walk.states.end(), [&](const FlattenedState& state) {
      return state.dtype == type.dtype && bytes(state) + size <= kMostBytes;
    });
    if (with_room == walk.states.end()) with_room = walk.states.insert(with_room, {type.dtype, 0, {}});
    with_room->members.push_back({alias.leaf, alias.result, with_room->elements});
    with_room->elements += type.numel();
  }
  walk.aliases = std::move(others);
}

std::vector<int64_t> argument_places(const Walk& walk) {
  return numbered(walk.leaves.size(), walk.states, &FlattenedState::Member::leaf);
}

std::vector<int64_t> result_places(const Walk& walk) {
  return numbered(walk.results.size(), walk.states, &FlattenedState::Member::result);
}

int64_t count_of_own(const std::vector<int64_t>& places) {
  return std::count_if(places.begin(), places.end(), [](int64_t place) { return place >= 0; });
}

}  // namespace tpjrt::graph
