// Finds the periods of a graph. This is the cold path: once for each new graph.
#include "engine/tier/loop_rerolling.h"

#include <algorithm>
#include <array>
#include <functional>
#include <map>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>

namespace tpjrt::engine {
namespace {

using graph::Node;
using graph::SignaturePtr;
using graph::Value;

constexpr size_t kSegment = 48;      // least calls of a segment: starting a program costs as much as recording some
constexpr size_t kLeastSaved = 200;  // calls that need not be compiled
constexpr size_t kMuchSaved = 1000;  // calls; above this, leaves that nobody else holds don't matter
constexpr size_t kWorthACut = 4;     // calls saved for each call between segments
constexpr std::array<size_t, 2> kIterations{16, 4};  // least iterations of a run, in order of preference
constexpr size_t kWindow = 16;                       // calls that are hashed together
constexpr size_t kDistances = 8;                     // distances that are tried as periods

// The calls [first, last) of a sequence, each of which equals the call one period before it, if there is one.
struct Run {
  size_t first = 0, last = 0, period = 1;

  size_t length() const { return last - first; }
  size_t segment() const { return period * ((kSegment + period - 1) / period); }
  size_t saved() const { return length() > segment() ? length() - segment() : 0; }
};

// The calls of a graph in recording order, without the rare ones.
struct Sequence {
  static constexpr size_t kElsewhere = ~size_t{0};

  std::vector<const Node*> all;
  std::vector<size_t> frequent;  // their indices in `all`
  std::vector<size_t> place;     // by Node::local: index in `all`
  std::unordered_set<const Node*>
      kept;  // leaves that only the graph holds: a forward that has run kept them for a backward

  Sequence(const graph::Walk& walk, size_t least)
      : all(graph::in_recording_order(walk)), place(walk.nodes.size(), kElsewhere) {
    for (const graph::NodePtr& leaf : walk.leaves) {
      if (leaf.use_count() == leaf->uses + 1) kept.insert(leaf.get());  // its uses and the walk's reference
    }
    for (const graph::Walk::Alias& alias : walk.aliases) kept.erase(walk.leaves[alias.leaf].get());  // updated in place
    std::unordered_map<SignaturePtr, size_t> count;
    for (const Node* node : all) ++count[node->signature];
    for (size_t i = 0; i < all.size(); ++i) {
      place[all[i]->local] = i;
      if (count[all[i]->signature] >= least) frequent.push_back(i);
    }
  }
  const Node& node(size_t i) const { return *all[frequent[i]]; }
  SignaturePtr call(size_t i) const { return node(i).signature; }
};

// Returns the most common distances between equal windows of kWindow calls.
std::vector<size_t> common_distances(const Sequence& sequence, size_t first, size_t last) {
  std::unordered_map<uint64_t, size_t> seen;
  std::map<size_t, size_t> count;
  for (size_t i = first; i + kWindow <= last; ++i) {
    uint64_t hash = 0;
    for (size_t k = 0; k < kWindow; ++k) hash = graph::mixed(hash, reinterpret_cast<uint64_t>(sequence.call(i + k)));
    const auto [it, is_new] = seen.try_emplace(hash, i);
    if (!is_new) ++count[i - std::exchange(it->second, i)];
  }
  std::vector<std::pair<size_t, size_t>> by_count;
  for (const auto& [distance, times] : count) by_count.emplace_back(times, distance);
  std::sort(by_count.begin(), by_count.end(), std::greater<>());
  std::vector<size_t> distances;
  for (size_t i = 0; i < std::min(by_count.size(), kDistances); ++i) distances.push_back(by_count[i].second);
  std::sort(distances.begin(), distances.end());
  return distances;
}

// Returns true if the iterations read values that all of them share or that the previous one made, not persistent
// leaves of their own.
bool is_loop(const Sequence& sequence, const Run& run) {
  constexpr size_t kShared = ~size_t{0};
  const size_t iterations = run.length() / run.period;
  std::unordered_map<const Node*, size_t> reader;   // for each leaf its only iteration
  std::unordered_map<const Node*, size_t> earlier;  // for each value computed earlier its only iteration
  std::unordered_map<const Node*, size_t> maker;    // for each node its iteration
  size_t own = 0, shared = 0, linked = 0;
  const auto comes_from = [&](const Node& node, size_t iteration) {
    const auto made_in_iteration = [&](const Node* one) {
      const auto it = maker.find(one);
      return it != maker.end() && it->second == iteration;
    };
    return made_in_iteration(&node) ||
           std::any_of(node.operands.begin(), node.operands.end(), [&](const Value& operand) {
             return !maker.contains(&node) && made_in_iteration(operand.node.get());  // through a rare call
           });
  };
  for (size_t i = run.first; i < run.last; ++i) {
    const size_t iteration = (i - run.first) / run.period;
    maker.emplace(&sequence.node(i), iteration);
    for (const Value& operand : sequence.node(i).operands) {
      if (!operand.is_leaf()) linked += comes_from(*operand.node, iteration - 1);
      if (maker.contains(operand.node.get())) continue;
      const auto [it, is_new] = (operand.is_leaf() ? reader : earlier).try_emplace(operand.node.get(), iteration);
      if (!is_new && it->second != iteration) it->second = kShared;
    }
  }
  for (const auto& [leaf, iteration] : reader) {
    if (iteration == kShared) {
      ++shared;
    } else {
      own += run.saved() < kMuchSaved || !sequence.kept.contains(leaf);
    }
  }
  if (shared > 0) return own <= shared * iterations;
  // Iterations may read rows of a value that was computed earlier. Then nearly everything else that they read from
  // before is shared by all of them.
  const size_t common =
      std::count_if(earlier.begin(), earlier.end(), [](const auto& e) { return e.second == kShared; });
  const bool reads_rows = common > 0 && (earlier.size() - common) * 2 < iterations;
  return own * 2 < iterations && (linked * 2 >= iterations || reads_rows);
}

// Returns the run in [first, last) that saves most and has at least `iterations` iterations.
Run best_run(const Sequence& sequence, size_t first, size_t last, size_t iterations) {
  Run best;
  for (const size_t period : common_distances(sequence, first, last)) {
    Run run{first, first, period};
    for (size_t i = first + period; i <= last; ++i) {
      if (i < last && sequence.call(i) == sequence.call(i - period)) {
        run.last = i + 1;
        continue;
      }
      const bool enough = run.length() >= iterations * period && run.saved() >= kLeastSaved;
      if (enough && run.saved() > best.saved() && is_loop(sequence, run)) best = run;
      run = {i + 1 - period, i + 1 - period, period};
    }
  }
  return best;
}

// Returns where to cut the first iteration of a run so that the fewest bytes pass from one program to the next.
size_t best_cut(const Sequence& sequence, const Run& run) {
  const size_t middle = run.first + run.length() / run.period / 2 * run.period;  // the start of an iteration
  std::vector<int64_t> crossing(run.period + 1, 0);                              // differences
  std::unordered_map<const Node*, size_t> last_use;                              // in the run
  for (size_t i = run.first; i < run.last; ++i) {
    for (const Value& operand : sequence.node(i).operands) last_use[operand.node.get()] = i;
  }
  for (size_t i = run.first; i < run.last; ++i) {
    const auto used = last_use.find(&sequence.node(i));
    if (used == last_use.end()) continue;
    // The value crosses the cuts from i + 1 to its last use.
    const size_t from = std::max(i + 1, middle), to = std::min(used->second + 1, middle + run.period);
    if (from >= to) continue;
    int64_t nbytes = 0;
    for (const graph::TypePtr type : sequence.call(i)->results)
      nbytes += type ? static_cast<int64_t>(type->nbytes()) : 0;
    crossing[from - middle] += nbytes;
    crossing[to - middle] -= nbytes;
  }
  size_t best = 0;
  for (size_t k = 1; k < run.period; ++k) {
    crossing[k] += crossing[k - 1];
    // Ties go to the cut before the same call, wherever the run begins.
    const auto rank = [&](size_t cut) {
      return std::pair(crossing[cut], std::hash<std::string>()(sequence.call(run.first + cut)->name));
    };
    if (rank(k) < rank(best)) best = k;
  }
  return best;
}

class Cutter {
 public:
  Cutter(const Sequence& sequence, graph::PartOfNode& part) : sequence_(sequence), part_(part) {}

  // Cuts at the runs, which are in order and don't overlap.
  void cut(const std::vector<Run>& runs) {
    for (const Run& run : runs) cut(run);
    rest_until(sequence_.all.size());
  }
  bool any() const { return any_; }

 private:
  void rest_until(size_t end) {
    for (; next_ < end; ++next_) put(next_, now_);
  }
  void put(size_t place, uint32_t part) { part_[sequence_.all[place]->local] = part; }

  void cut(const Run& run) {
    const size_t first = run.first + best_cut(sequence_, run);
    const size_t begin = sequence_.frequent[first], end = sequence_.frequent[run.last - 1] + 1;
    // Rare calls within the run can go before it if they need nothing from it.
    std::vector<bool> inner(end - begin, true);
    size_t cuts = 0;
    for (size_t i = begin, k = first; i < end; ++i) {
      if (i == sequence_.frequent[k]) {
        ++k;
        continue;
      }
      const auto& operands = sequence_.all[i]->operands;
      inner[i - begin] = std::any_of(operands.begin(), operands.end(), [&](const Value& operand) {
        if (operand.is_leaf()) return false;
        const size_t place = sequence_.place[operand.node->local];
        return place != Sequence::kElsewhere && place >= begin && inner[place - begin];
      });
      cuts += inner[i - begin];
    }
    if (cuts * kWorthACut > run.saved()) return;
    any_ = true;
    rest_until(begin);
    const uint32_t before = now_++;
    const size_t segment = cuts > 0 ? run.period : run.segment();
    const size_t last = first + (run.last - first) / segment * segment;
    bool between = false;
    for (size_t k = first; k < last; ++next_) {
      const bool rare = next_ != sequence_.frequent[k];
      if (rare && !inner[next_ - begin]) {
        put(next_, before);
        continue;
      }
      if (rare != between || (!rare && k > first && (k - first) % segment == 0)) ++now_;
      between = rare;
      put(next_, now_);
      k += !rare;
    }
    ++now_;
    for (; next_ < end; ++next_) put(next_, now_);
  }

  const Sequence& sequence_;
  graph::PartOfNode& part_;
  size_t next_ = 0;  // the first index without a part
  uint32_t now_ = 0;
  bool any_ = false;
};

// Finds runs in order: long runs first, then shorter ones between them.
void find_runs(const Sequence& sequence, size_t first, size_t last, std::vector<Run>& runs) {
  if (last - first < kLeastSaved) return;
  Run run;
  for (size_t i = 0; i < kIterations.size() && run.length() == 0; ++i)
    run = best_run(sequence, first, last, kIterations[i]);
  if (run.length() == 0) return;
  find_runs(sequence, first, run.first, runs);
  runs.push_back(run);
  find_runs(sequence, run.last, last, runs);
}

}  // namespace

graph::PartOfNode reroll_loops(const graph::Walk& walk) {
  for (const size_t least : kIterations) {
    const Sequence sequence(walk, least);
    std::vector<Run> runs;
    find_runs(sequence, 0, sequence.frequent.size(), runs);
    graph::PartOfNode part(walk.nodes.size(), 0);
    Cutter cutter(sequence, part);
    cutter.cut(runs);
    if (cutter.any()) return part;
  }
  return {};
}

}  // namespace tpjrt::engine
