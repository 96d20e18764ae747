# SPDX-FileCopyrightText: The KoZeRO authors
# SPDX-License-Identifier: Apache-2.0
#
# start_calls.gdb: prints rank 0's control calls of a start, "CALL KIND BYTES", without those that the simulation runs
# itself, up to the first published weights. The counts are kStart in simulate.cpp.
#   K="build/release/kozero train tests/scale/model.toml train.global_batch=4 run.dir=/tmp/start"
#   KOZERO_RANKS_PER_NODE=2 mpiexec -n 1 gdb -q -batch -x tests/scale/start_calls.gdb --args $K : -n 3 $K |
#     grep CALL | sort | uniq -c
set pagination off
set print thread-events off
define print_unless_simulated
  if !$_any_caller_matches(".*(make_mesh|ShardedState)", 60)
    printf "CALL %s %ld\n", $arg0, $arg1
  end
end
# By the calling convention of x86-64: rdi is the result, rsi the communicator, rdx and rcx a span or rdx a string.
break kozero::distributed::GroupCommunicator::sum_control
commands
  silent
  print_unless_simulated "sum" $rcx*8
  continue
end
break kozero::distributed::GroupCommunicator::gather_control
commands
  silent
  print_unless_simulated "gather" $rcx
  continue
end
break kozero::distributed::GroupCommunicator::broadcast_control
commands
  silent
  print_unless_simulated "broadcast" *(long*)($rdx+8)
  continue
end
break kozero::zero::Weights<float>::publish
commands
  silent
  kill
  quit
end
run
