# The parts of dhp that need libraries: the file that looks for these, and a pattern of the headers that need the part.
# This table defines the targets dhp::<part>, in dhp's build and in find_package(dhp), and its components.
set(dhp_parts "")
macro(dhp_row part file headers)
  list(APPEND dhp_parts ${part})
  set(dhp_file_of_${part} ${file})
  set(dhp_headers_of_${part} "${headers}")
endmacro()
dhp_row(processes processes "^openssl/")           # dhp::dhp with OpenSSL, for ranks that are processes
dhp_row(gloo processes "^gloo/")                   # dhp::processes with Gloo
dhp_row(etcd processes "^curl/")                   # dhp::processes with libcurl, for a store in etcd
dhp_row(mpi mpi "^mpi[.]h")                        # dhp::processes with MPI
dhp_row(eigen eigen "^(unsupported/)?Eigen/")      # dhp::dhp with Eigen
dhp_row(cuda cuda "^(cuda_|cublas|cudnn|nvtx3/)")  # dhp::dhp with the CUDA libraries
dhp_row(nccl cuda "^nccl")                         # dhp::cuda with NCCL
# The engines between processes, by device. The first connects ranks that have met in a rendezvous.
set(dhp_engines_cpu gloo mpi)
set(dhp_engines_cuda nccl)
