// SPDX-License-Identifier: Apache-2.0
// What the guard reads from operators, for all that PyTorch registers.
#include "torch_glue/model_state/guarded_operator.h"

#include "tests/torch_glue/emulated_operators.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/library.h>

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <set>
#include <string>
#include <string_view>

namespace spillway {
namespace {

class GuardedOperatorTest : public testing::Test {
 protected:
  void SetUp() override { ASSERT_TRUE(emulated_operators()) << dlerror(); }

  static void each_of_pytorch(const std::function<void(const c10::FunctionSchema&)>& visit) {
    for (const auto& name : c10::Dispatcher::singleton().getAllOpNames()) {
      if (name.name.rfind("aten::", 0) != 0) continue;
      const auto op = c10::Dispatcher::singleton().findSchema(name);
      if (op) visit(op->schema());
    }
  }
};

TEST_F(GuardedOperatorTest, AnArgumentThatIsDeclaredAsWrittenIsWritten) {
  std::size_t written = 0;
  each_of_pytorch([&](const c10::FunctionSchema& schema) {
    const GuardedOperator known(schema);
    ASSERT_EQ(known.arguments(), schema.arguments().size());
    for (std::size_t i = 0; i < known.arguments(); ++i) {
      // The text has an exclamation mark wherever the annotation is: "Tensor(a!)[]".
      const auto* const alias = schema.arguments()[i].alias_info();
      bool declared = alias != nullptr && alias->isWrite();
      if (alias != nullptr)
        for (const auto& inner : alias->containedTypes())
          declared |= inner.isWrite();
      if (!declared) continue;
      ++written;
      EXPECT_TRUE(known.writes(i)) << schema;
    }
  });
  EXPECT_GT(written, 1000U);
}

TEST_F(GuardedOperatorTest, AnInPlaceOperatorWritesItsFirstArgument) {
  // Their results are their first arguments, and they change no element.
  const std::set<std::string> views{"aten::swapaxes_", "aten::swapdims_"};
  each_of_pytorch([&](const c10::FunctionSchema& schema) {
    if (schema.name().back() != '_' || schema.name().find("::__") != std::string::npos) return;
    if (schema.arguments().empty() || views.contains(schema.name())) return;
    const std::string type = schema.arguments()[0].type()->str();
    if (type.rfind("Tensor", 0) != 0) return;
    EXPECT_TRUE(GuardedOperator(schema).writes(0)) << schema;
  });
}

TEST_F(GuardedOperatorTest, NormalizationsWriteRunningStatisticsWhateverTheirSchemas) {
  std::set<std::string> undeclared;
  each_of_pytorch([&](const c10::FunctionSchema& schema) {
    const GuardedOperator known(schema);
    for (std::size_t i = 0; i < known.arguments(); ++i) {
      const c10::Argument& argument = schema.arguments()[i];
      if (argument.name() != "running_mean" && argument.name() != "running_var") continue;
      EXPECT_TRUE(known.writes(i)) << schema;
      if (argument.alias_info() == nullptr) undeclared.insert(schema.name());
    }
  });
  for (const char* name : {"aten::native_batch_norm",
                           "aten::cudnn_batch_norm",
                           "aten::batch_norm_update_stats",
                           "aten::batch_norm_gather_stats"})
    EXPECT_TRUE(undeclared.contains(name)) << name;
}

TEST_F(GuardedOperatorTest, OnlyArgumentsWithoutTensorsAreNotVisited) {
  each_of_pytorch([](const c10::FunctionSchema& schema) {
    const GuardedOperator known(schema);
    const std::set<std::size_t> visited(known.tensors().begin(), known.tensors().end());
    for (std::size_t i = 0; i < known.arguments(); ++i) {
      const std::string type = schema.arguments()[i].type()->str();
      const bool has = type.find("Tensor") != type.npos || type.find("Storage") != type.npos;
      if (has) {
        EXPECT_TRUE(visited.contains(i)) << schema;
      }
      if (known.writes(i)) {
        EXPECT_TRUE(visited.contains(i)) << schema;
      }
    }
  });
}

TEST_F(GuardedOperatorTest, TheOperatorsThatAreSlicedAreElementwiseOverTheirLists) {
  // Each was looked at: its result at a place depends on the lists' tensors at that place, and on
  // arguments that are no lists.
  const std::set<std::string_view> reviewed{"abs",
                                            "acos",
                                            "add",
                                            "addcdiv",
                                            "addcmul",
                                            "asin",
                                            "atan",
                                            "ceil",
                                            "clamp_max",
                                            "clamp_min",
                                            "copy",
                                            "cos",
                                            "cosh",
                                            "div",
                                            "erf",
                                            "erfc",
                                            "exp",
                                            "expm1",
                                            "floor",
                                            "frac",
                                            "lerp",
                                            "lgamma",
                                            "log",
                                            "log10",
                                            "log1p",
                                            "log2",
                                            "max",
                                            "maximum",
                                            "minimum",
                                            "mul",
                                            "neg",
                                            "norm",
                                            "pow",
                                            "powsum",
                                            "reciprocal",
                                            "round",
                                            "rsqrt",
                                            "sigmoid",
                                            "sign",
                                            "sin",
                                            "sinh",
                                            "sqrt",
                                            "sub",
                                            "tan",
                                            "tanh",
                                            "trunc",
                                            "zero",
                                            "clone",
                                            "_fused_adagrad",
                                            "_fused_adam",
                                            "_fused_adamw",
                                            "_fused_sgd",
                                            "_amp_foreach_non_finite_check_and_unscale"};
  std::size_t sliced = 0;
  each_of_pytorch([&](const c10::FunctionSchema& schema) {
    if (!GuardedOperator(schema).takes_lists()) return;
    ++sliced;
    std::string_view name = schema.name();
    name.remove_prefix(std::string_view("aten::").size());
    if (name.starts_with("_foreach_")) name.remove_prefix(std::string_view("_foreach_").size());
    if (name.back() == '_') name.remove_suffix(1);
    EXPECT_TRUE(reviewed.contains(name)) << schema;
    // A list of numbers has one for each tensor.
    for (const c10::Argument& argument : schema.arguments()) {
      if (argument.type()->kind() != c10::TypeKind::ListType) continue;
      const auto kind = argument.type()->castRaw<c10::ListType>()->getElementType()->kind();
      EXPECT_TRUE(kind == c10::TypeKind::TensorType || kind == c10::TypeKind::NumberType) << schema;
    }
    for (const c10::Argument& result : schema.returns())
      EXPECT_EQ(result.type()->str(), "Tensor[]") << schema;
  });
  EXPECT_GT(sliced, 200U);
}

TEST_F(GuardedOperatorTest, OperatorsWithATensorOfScalarsAndThoseWithoutListsAreNotSliced) {
  each_of_pytorch([](const c10::FunctionSchema& schema) {
    const bool expected_whole =
        (schema.overload_name() == "Tensor" && (schema.name() == "aten::_foreach_addcdiv" ||
                                                schema.name() == "aten::_foreach_addcmul_")) ||
        schema.name() == "aten::_fused_rms_norm" || schema.name() == "aten::_fused_dropout" ||
        (schema.name() == "aten::_amp_foreach_non_finite_check_and_unscale" &&
         schema.overload_name().empty());
    if (expected_whole) {
      EXPECT_FALSE(GuardedOperator(schema).takes_lists()) << schema;
    }
  });
}

TEST_F(GuardedOperatorTest, AnOperatorThatIsDefinedAgainIsKnownByItsNewSchema) {
  const auto of = [](const char* schema) {
    torch::Library library(torch::Library::DEF, "spillway_again", std::nullopt, __FILE__, __LINE__);
    library.def(schema);
    const auto op = c10::Dispatcher::singleton().findSchemaOrThrow("spillway_again::op", "");
    const GuardedOperator& known = GuardedOperator::of(op);
    return std::pair(known.arguments(), known.writes(0));
  };
  EXPECT_EQ(of("op(Tensor a) -> Tensor"), std::pair(std::size_t{1}, true));
  EXPECT_EQ(of("op(Tensor a, Tensor b) -> Tensor"), std::pair(std::size_t{2}, true));
  EXPECT_EQ(of("op(Tensor a) -> Tensor"), std::pair(std::size_t{1}, true));
}

}  // namespace
}  // namespace spillway
