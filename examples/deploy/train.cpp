// Trains the network that export_digits.py has put into a file: no Python, no PyTorch.
//
//   train FOLDER [plugin]
#include <torch_pjrt/program.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <numbers>
#include <numeric>
#include <random>
#include <string>
#include <vector>

using torch_pjrt::Program;
using torch_pjrt::Tensor;

namespace {

constexpr int64_t kBatch = 64, kPixels = 64, kClasses = 10, kEpochs = 12;
constexpr double kMostLearning = 5e-3;

// The schedule of torch.optim.lr_scheduler.OneCycleLR: up for three tenths of the steps, then down, by half cosines.
double learning_rate(int64_t step, int64_t steps) {
  const double rise = 0.3 * static_cast<double>(steps) - 1;
  const auto between = [](double from, double to, double share) {
    return to + (from - to) / 2 * (1 + std::cos(std::numbers::pi * share));
  };
  const auto at = static_cast<double>(step);
  if (at <= rise) return between(kMostLearning / 25, kMostLearning, at / rise);
  return between(kMostLearning, kMostLearning / 25e4, (at - rise) / (static_cast<double>(steps) - 1 - rise));
}

double accuracy(const Program& program, const Tensor& images, const std::vector<int64_t>& labels) {
  const auto scores = program.call("predict", {images})[0].values<float>();
  int64_t right = 0;
  for (size_t i = 0; i < labels.size(); ++i) {
    const auto* row = scores.data() + i * kClasses;
    right += std::max_element(row, row + kClasses) - row == labels[i];
  }
  return static_cast<double>(right) / static_cast<double>(labels.size());
}

void train(const std::string& folder, const std::string& plugin) {
  const Program program = Program::open(folder + "/digits.pjrt", {.plugin = plugin});
  const auto images = Tensor::load_npy(folder + "/train_images.npy").values<float>();
  const auto labels = Tensor::load_npy(folder + "/train_labels.npy").values<int64_t>();
  const Tensor test = Tensor::load_npy(folder + "/test_images.npy");
  const auto test_labels = Tensor::load_npy(folder + "/test_labels.npy").values<int64_t>();

  std::vector<size_t> order(labels.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::mt19937 engine(0);
  const auto per_epoch = static_cast<int64_t>(labels.size()) / kBatch;
  const auto start = std::chrono::steady_clock::now();
  int64_t step = 0;
  for (int64_t epoch = 0; epoch < kEpochs; ++epoch) {
    std::shuffle(order.begin(), order.end(), engine);
    float loss = 0;
    for (int64_t batch = 0; batch < per_epoch; ++batch, ++step) {
      std::vector<float> x(kBatch * kPixels);
      std::vector<int64_t> y(kBatch);
      for (int64_t i = 0; i < kBatch; ++i) {
        const size_t from = order[static_cast<size_t>(batch * kBatch + i)];
        std::copy_n(images.begin() + static_cast<int64_t>(from) * kPixels, kPixels, x.begin() + i * kPixels);
        y[static_cast<size_t>(i)] = labels[from];
      }
      program.set_state("hyperparameters", Tensor::of<double>({1}, {learning_rate(step, kEpochs * per_epoch)}));
      const auto results = program.call("train_step", {{"images", Tensor::of<float>({kBatch, 1, 8, 8}, x)},
                                                       {"labels", Tensor::of<int64_t>({kBatch}, y)}});
      loss = results[0].values<float>()[0];
    }
    std::printf("epoch %2d: loss %.3f\n", static_cast<int>(epoch + 1), static_cast<double>(loss));
  }
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  const double reached = accuracy(program, test, test_labels);
  std::printf("accuracy in C++: %.1f%% after %d steps in %.1f s\n", reached * 100, static_cast<int>(step), seconds);
  program.save_state(folder + "/trained.safetensors");
  if (reached < 0.97) throw torch_pjrt::Error("less than 97 %");
}

}  // namespace

int main(int argc, char** argv) {
  try {
    if (argc < 2) throw torch_pjrt::Error("train FOLDER [plugin]");
    train(argv[1], argc > 2 ? argv[2] : "");
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "train: %s\n", error.what());
    return 1;
  }
}
