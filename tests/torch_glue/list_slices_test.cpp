// SPDX-License-Identifier: Apache-2.0
#include "tests/torch_glue/model_state_fixture.h"

#include <ATen/core/dispatch/Dispatcher.h>

#include <algorithm>
#include <functional>
#include <random>
#include <string>

namespace spillway {
namespace {

using Lists = std::vector<std::vector<at::Tensor>>;

/// NaN equals itself by its bits.
at::Tensor bits(const at::Tensor& tensor) {
  return tensor.contiguous().reshape({-1}).view(at::kByte);
}

/// Overloads with results as arguments warn that these have other shapes.
class Quiet : public c10::WarningHandler {
 public:
  void process(const c10::Warning& warning) override { static_cast<void>(warning); }
};

class ListSlicesTest : public ModelStateTest {
 protected:
  void TearDown() override {
    set_slice_bytes(Bytes{256ULL << 20U});
    ModelStateTest::TearDown();
  }

  /// Random lists with the same sizes at each place.
  static Lists lists(unsigned seed, std::size_t count, std::size_t length = 17) {
    std::mt19937 dice(seed);
    Lists all(count);
    for (std::size_t k = 0; k < length; ++k) {
      const auto elements = static_cast<std::int64_t>(1 + dice() % 60);
      for (auto& list : all)
        list.push_back(at::rand({elements}, at::kFloat).add_(0.25));
    }
    return all;
  }

  static Lists on_device_of(const Lists& all, bool are_managed) {
    Lists copies;
    for (const auto& list : all) {
      copies.emplace_back();
      for (const at::Tensor& each : list) {
        copies.back().push_back(on_device(each));
        if (are_managed) manage(copies.back().back());
      }
    }
    return copies;
  }

  /// Its arguments' and results' values afterwards.
  static Lists outcome(const Lists& all,
                       bool are_managed,
                       const std::function<Lists(Lists&)>& call) {
    Lists arguments = on_device_of(all, are_managed);
    if (are_managed) ManagedStorages::instance().offload_all();
    Lists values = call(arguments);
    values.insert(values.end(), arguments.begin(), arguments.end());
    for (auto& list : values)
      for (at::Tensor& each : list)
        each = each.cpu();
    return values;
  }

  static void expect_equal(const Lists& all,
                           const std::function<Lists(Lists&)>& call,
                           const std::string& name) {
    const Lists whole = outcome(all, false, call);
    for (const std::uint64_t bytes : {1U, 300U, 2000U}) {
      set_slice_bytes(Bytes{bytes});
      const Lists sliced = outcome(all, true, call);
      ASSERT_EQ(whole.size(), sliced.size()) << name;
      for (std::size_t i = 0; i < whole.size(); ++i) {
        ASSERT_EQ(whole[i].size(), sliced[i].size()) << name;
        for (std::size_t k = 0; k < whole[i].size(); ++k)
          ASSERT_TRUE(bits(whole[i][k]).equal(bits(sliced[i][k]))) << name << ' ' << i << ' ' << k;
      }
    }
  }
};

std::string text(const c10::FunctionSchema& schema) {
  std::ostringstream out;
  out << schema;
  return out.str();
}

/// An argument of each type that operators on lists have; none for types that are not made here.
std::optional<c10::IValue> argument_of(const c10::Argument& argument,
                                       Lists& lists,
                                       std::size_t& next) {
  const std::string type = argument.type()->str();
  const std::size_t length = lists[0].size();
  if (type == "Tensor[]") {
    // Gradients may be infinite only where that is tested.
    return c10::IValue(lists[next++]);
  }
  if (argument.default_value()) return argument.default_value();
  if (type == "Scalar[]") {
    c10::List<at::Scalar> scalars;
    for (std::size_t k = 0; k < length; ++k)
      scalars.push_back(at::Scalar(0.5 + static_cast<double>(k)));
    return c10::IValue(scalars);
  }
  if (type == "Scalar" || type == "float") return c10::IValue(0.5);
  if (type == "bool") return c10::IValue(false);
  if (type == "Tensor") return c10::IValue(at::full({}, 0.5, at::device(at::kCUDA)));
  return std::nullopt;
}

TEST_F(ListSlicesTest, EveryOperatorOnListsComputesTheSameInSlices) {
  Quiet quiet;
  const c10::WarningUtils::WarningHandlerGuard guard(&quiet);
  int called = 0;
  for (const auto& name : c10::Dispatcher::singleton().getAllOpNames()) {
    const auto op = c10::Dispatcher::singleton().findSchema(name);
    if (!op || !GuardedOperator(op->schema()).takes_lists()) continue;
    // Their CUDA kernels need state_steps of one element; test_optimizers runs them.
    if (op->schema().name().rfind("aten::_fused_", 0) == 0) continue;
    std::size_t count = 0;
    for (const c10::Argument& argument : op->schema().arguments())
      if (argument.type()->str() == "Tensor[]") ++count;
    const Lists all = lists(static_cast<unsigned>(called), count);
    const auto call = [&](Lists& arguments) {
      c10::Stack stack;
      std::size_t next = 0;
      for (const c10::Argument& argument : op->schema().arguments()) {
        auto value = argument_of(argument, arguments, next);
        if (!value) throw std::invalid_argument(argument.type()->str());
        stack.push_back(std::move(*value));
      }
      op->callBoxed(stack);
      Lists results;
      for (const c10::IValue& result : stack)
        results.push_back(result.toTensorVector());
      return results;
    };
    try {
      static_cast<void>(outcome(all, false, call));
    } catch (const std::exception&) {
      continue;  // refused in plain too
    }
    ++called;
    expect_equal(all, call, text(op->schema()));
  }
  EXPECT_GT(called, 150);
}

TEST_F(ListSlicesTest, TheFoundInfinityOfAllSlicesIsReported) {
  Lists all = lists(1, 1);
  all[0][3][0] = std::numeric_limits<float>::infinity();
  expect_equal(
      all,
      [](Lists& arguments) {
        at::Tensor found = at::zeros({1}, at::device(at::kCUDA));
        const at::Tensor scale = at::full({1}, 0.25, at::device(at::kCUDA));
        at::_amp_foreach_non_finite_check_and_unscale_(arguments[0], found, scale);
        EXPECT_EQ(found.item<float>(), 1);
        return Lists{{found}};
      },
      "unscale");
}

TEST_F(ListSlicesTest, ListsOfDifferentLengthsAreRefusedAsInPlain) {
  // A list as long as each slice, and not as the whole, must not be taken for one of its slices.
  std::vector<at::Tensor> four;
  for (int i = 0; i < 4; ++i)
    four.push_back(managed(static_cast<float>(i), 16));
  const std::vector<at::Tensor> two{four[0].clone(), four[1].clone()};
  const std::vector<at::Scalar> numbers(2, 1.0);
  set_slice_bytes(Bytes{2 * 16 * sizeof(float)});
  EXPECT_THROW(at::_foreach_add_(four, two), c10::Error);
  EXPECT_THROW(at::_foreach_add_(four, numbers), c10::Error);
  EXPECT_TRUE(holds(four[0], values(0, 16)));
}

TEST_F(ListSlicesTest, ListsThatPlainComputesOneByOneAreNotSliced) {
  // PyTorch then computes one after the other, for which all have to be resident at once.
  std::vector<at::Tensor> list;
  for (int i = 0; i < 6; ++i)
    list.push_back(managed(static_cast<float>(i), 64));
  set_slice_bytes(Bytes{1});
  const auto most_at_once = [&] {
    ManagedStorages::instance().offload_all();
    std::ptrdiff_t most = 0;
    const Tracker tracker([&](const ccc::TraceEntry&) {
      most = std::max(most, std::count_if(list.begin(), list.end(), [](const at::Tensor& each) {
                        return of(each)->pinned();
                      }));
    });
    static_cast<void>(at::_foreach_norm(list));
    return most;
  };
  EXPECT_EQ(most_at_once(), 1);
  list[2] = manage(on_device(at::ones({8, 8}).to(at::kDouble)));
  EXPECT_EQ(most_at_once(), 6);
  list[2] = manage(on_device(at::ones({16, 8}))).narrow(1, 0, 4);
  EXPECT_EQ(most_at_once(), 6);
  expect_equal(
      {{at::rand({64}), at::rand({64}).to(at::kDouble), at::rand({8, 8}).t(), at::rand({3})}},
      [](Lists& arguments) { return Lists{at::_foreach_norm(arguments[0])}; },
      "mixed norm");
}

TEST_F(ListSlicesTest, FusedOptimizersComputeTheSameInSlices) {
  Lists all = lists(5, 4);
  all.emplace_back();
  for (std::size_t k = 0; k < all[0].size(); ++k)
    all[4].push_back(at::full({}, 3.0F));
  expect_equal(
      all,
      [](Lists& l) {
        at::_fused_adam_(
            l[0], l[1], l[2], l[3], {}, l[4], 1e-3, 0.9, 0.99, 0.1, 1e-8, false, false);
        return Lists{};
      },
      "fused adam");
}

}  // namespace
}  // namespace spillway
