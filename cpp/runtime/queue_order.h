// Order between the commands of queues, without a wait of the host.
#pragma once

namespace torch_opencl::runtime {

class Queue;

// Later commands of `queue` wait for what `other` was given.
void wait_for(Queue& queue, Queue& other);
// The same of every other queue of its device.
void wait_for_others(Queue& queue);
// Later commands of the others wait for what `queue` was given.
void let_others_wait(Queue& queue);

}  // namespace torch_opencl::runtime
