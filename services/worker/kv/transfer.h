#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "common/clock.h"
#include "kernels/kv_layout/kv_layout.h"
#include "services/worker/kv/host_arena.h"

namespace ragcache::worker {

// One order to the thread that copies between the tiers, and how far it is. A load takes all that a
// request needs, layer by layer over all its segments, so that the first layers can be computed
// with while later ones are copied. Made by the engine; whoever copies moves it on; any thread
// reads.
class Transfer {
 public:
  enum class Kind { kSave, kLoad, kErase };
  enum class Outcome {
    kDone,
    kMissing,  // of a load: the copy is not there
    kDamaged,  // of a load: a checksum does not match
    kFailed,   // it was given up
  };
  // One segment.
  struct Piece {
    HostArena::Entry host;
    std::vector<int32_t> device_blocks;  // as many as on the host; of an erase none
    bool verify = false;                 // of a load: compares checksums
    Outcome outcome = Outcome::kDone;    // valid once the transfer has ended
  };

  Transfer(Kind kind, uint64_t number, std::vector<Piece> pieces, const kernels::KvLayout& layout);

  Kind kind() const { return kind_; }
  uint64_t number() const { return number_; }  // rises in the order of submission
  uint64_t bytes() const { return bytes_; }
  // Of them those of pieces that are kDone. REQUIRES: ended().
  uint64_t done_bytes() const;

  // Layers [0, layers()) are copied.
  int64_t layers() const { return layers_.load(std::memory_order_acquire); }
  bool ended() const { return ended_.load(std::memory_order_acquire); }
  // Nobody wants it any more: it ends soon, its pieces kFailed unless it is done already.
  void cancel() { cancelled_.store(true, std::memory_order_relaxed); }

  // Of the engine before submission and once it has ended; else of whoever copies.
  std::vector<Piece> pieces;
  TimePoint start{};
  TimePoint end{};
  std::vector<TimePoint> copied;  // [n_layers]: when each was; valid below layers()

 private:
  friend class Copier;

  const Kind kind_;
  const uint64_t number_;
  const uint64_t block_bytes_;
  uint64_t bytes_ = 0;
  std::atomic<int64_t> layers_ = 0;
  std::atomic<bool> ended_ = false;
  std::atomic<bool> cancelled_ = false;
};

// Carries transfers out, a group of layers at a time. Used by one thread.
class Copier {
 public:
  // Layers that are copied before the next look at the order's state. Few, for a request computes
  // with the first ones; not one, for each group costs a wake-up (engine_bench).
  static constexpr int64_t kGroupLayers = 2;

  // `device` is the pool's memory, of this layout; both outlive it.
  Copier(const kernels::KvLayout& layout, void* device, HostArena& arena,
         int64_t group_layers = kGroupLayers);

  // Does the transfer's next group of layers. True: it has ended.
  bool advance(Transfer& transfer);
  // Ends it as it is: what is not copied is kFailed.
  void give_up(Transfer& transfer);
  // Bytes that the next advance() copies.
  uint64_t next_bytes(const Transfer& transfer) const;

 private:
  void save(Transfer::Piece& piece, int64_t begin, int64_t end);
  void load(Transfer::Piece& piece, int64_t begin, int64_t end);
  void end(Transfer& transfer);

  const kernels::KvLayout layout_;
  const size_t layer_bytes_;
  const int64_t group_layers_;
  uint8_t* const device_;
  HostArena& arena_;
};

// Bytes a second from the arena to the device's memory, as a few blocks of both show. Writes into
// `blocks` of the device. Checksums are compared, and differ, if `verify`.
double measure_load_rate(const kernels::KvLayout& layout, void* device,
                         const std::vector<int32_t>& blocks, HostArena& arena, bool verify);

// Where the engine leaves its transfers: they are done one by one, in order, so that blocks on the
// host may be given away while a transfer before still uses them.
class TransferQueue {
 public:
  virtual ~TransferQueue() = default;
  virtual void submit(std::shared_ptr<Transfer> transfer) = 0;
  // Blocks until the transfer's layer is copied or it has ended. False: too long.
  virtual bool wait(const Transfer& transfer, int64_t layer) = 0;
  // The same for its end.
  virtual bool wait_for_end(const Transfer& transfer) = 0;
};

// The queue with a thread of its own.
class TransferActor final : public TransferQueue {
 public:
  // `ended` is called on its thread after each transfer's end.
  TransferActor(Copier copier, std::function<void()> ended,
                std::optional<double> throttle_mib_s = std::nullopt);
  ~TransferActor() override;

  void submit(std::shared_ptr<Transfer> transfer) override;
  bool wait(const Transfer& transfer, int64_t layer) override;
  bool wait_for_end(const Transfer& transfer) override;
  // Ends the thread after the group it is at; what waits is left undone. Idempotent.
  void stop();

 private:
  void run();
  // Holds a throttled copy back until it may go on. False: stopping.
  bool pace(std::unique_lock<std::mutex>& lock, TimePoint until);

  // Constant after construction.
  Copier copier_;  // the thread's own
  const std::function<void()> ended_;
  const std::optional<double> throttle_mib_s_;  // for tests and benches

  std::mutex mutex_;                  // guards what follows
  std::condition_variable wake_;      // of its thread
  std::condition_variable progress_;  // of who waits for a layer
  std::deque<std::shared_ptr<Transfer>> waiting_;
  bool stopping_ = false;

  std::thread thread_;
};

}  // namespace ragcache::worker
