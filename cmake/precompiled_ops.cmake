# One line per op, header:Struct or header:Struct:types. include/dhp/cpu/<header>.hpp defines
#   template <class T> struct dhp::cpu::<Struct>
# with static member functions that are defined outside the class (those inside are inline and would
# be compiled again by everyone). Without types: double,float,dhp::bf16,dhp::f16.
# A line whose header does not exist is left out.
set(DHP_PRECOMPILED_OPS
  gemm:Gemm:double,float
  gemm:MatrixProduct
  conv2d:Conv2d
  pool:Pool
  activation:ActivationKernel
  attention:AttentionKernel
  batch_norm:BatchNormKernel
  cross_entropy:CrossEntropyKernel
  dropout:DropoutKernel
  elementwise:Elementwise
  embedding:EmbeddingKernel
  fold:Fold:double,float
  layer_norm:LayerNormKernel
  optimizer:OptimizerKernel
  reduce:Reductions
  rows:Rows
)
