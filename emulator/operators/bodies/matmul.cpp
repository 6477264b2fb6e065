// SPDX-License-Identifier: Apache-2.0
#include "emulator/operators/bodies/bodies.h"

// Matrix products with a result of a wider type than the factors': on a GPU the sums are kept in
// that type.
namespace spillway::operators {
namespace {

at::Tensor widened(const c10::IValue& tensor, const c10::IValue& type) {
  return tensor.toTensor().to(type.toScalarType());
}

void mm(c10::Stack& s, const Draws&) {
  set_results(s, at::mm(widened(s[0], s[2]), widened(s[1], s[2])));
}

void mm_out(c10::Stack& s, const Draws&) {
  at::Tensor out = s[3].toTensor();
  set_results(s, at::mm_out(out, widened(s[0], s[2]), widened(s[1], s[2])));
}

void bmm(c10::Stack& s, const Draws&) {
  set_results(s, at::bmm(widened(s[0], s[2]), widened(s[1], s[2])));
}

void bmm_out(c10::Stack& s, const Draws&) {
  at::Tensor out = s[3].toTensor();
  set_results(s, at::bmm_out(out, widened(s[0], s[2]), widened(s[1], s[2])));
}

void addmm(c10::Stack& s, const Draws&) {
  set_results(s,
              at::addmm(widened(s[0], s[3]),
                        widened(s[1], s[3]),
                        widened(s[2], s[3]),
                        s[4].toScalar(),
                        s[5].toScalar()));
}

void addmm_out(c10::Stack& s, const Draws&) {
  at::Tensor out = s[6].toTensor();
  set_results(s,
              at::addmm_out(out,
                            widened(s[0], s[3]),
                            widened(s[1], s[3]),
                            widened(s[2], s[3]),
                            s[4].toScalar(),
                            s[5].toScalar()));
}

void baddbmm(c10::Stack& s, const Draws&) {
  set_results(s,
              at::baddbmm(widened(s[0], s[3]),
                          widened(s[1], s[3]),
                          widened(s[2], s[3]),
                          s[4].toScalar(),
                          s[5].toScalar()));
}

void baddbmm_out(c10::Stack& s, const Draws&) {
  at::Tensor out = s[6].toTensor();
  set_results(s,
              at::baddbmm_out(out,
                              widened(s[0], s[3]),
                              widened(s[1], s[3]),
                              widened(s[2], s[3]),
                              s[4].toScalar(),
                              s[5].toScalar()));
}

constexpr NamedBody kMatmulBodies[] = {
    {"aten::mm.dtype", mm},
    {"aten::mm.dtype_out", mm_out},
    {"aten::bmm.dtype", bmm},
    {"aten::bmm.dtype_out", bmm_out},
    {"aten::addmm.dtype", addmm},
    {"aten::addmm.dtype_out", addmm_out},
    {"aten::baddbmm.dtype", baddbmm},
    {"aten::baddbmm.dtype_out", baddbmm_out},
};

}  // namespace

c10::ArrayRef<NamedBody> matmul_bodies() {
  return kMatmulBodies;
}

}  // namespace spillway::operators
