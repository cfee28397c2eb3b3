#include "services/worker/kv/transfer.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "common/check.h"

namespace ragcache::worker {
namespace {

// A copy that makes no progress for this long is not waited for any longer.
constexpr Duration kPatience = std::chrono::seconds(30);

}  // namespace

Transfer::Transfer(Kind kind, uint64_t number, std::vector<Piece> a_pieces,
                   const kernels::KvLayout& layout)
    : pieces(std::move(a_pieces)),
      copied(layout.n_layers),
      kind_(kind),
      number_(number),
      block_bytes_(static_cast<uint64_t>(layout.block_bytes())) {
  for (const Piece& piece : pieces) {
    RAG_CHECK(kind == Kind::kErase || piece.device_blocks.size() == piece.host.blocks.size());
    bytes_ += piece.device_blocks.size() * block_bytes_;
  }
}

uint64_t Transfer::done_bytes() const {
  uint64_t bytes = 0;
  for (const Piece& piece : pieces) {
    if (piece.outcome == Outcome::kDone) bytes += piece.device_blocks.size() * block_bytes_;
  }
  return bytes;
}

Copier::Copier(const kernels::KvLayout& layout, void* device, HostArena& arena,
               int64_t group_layers)
    : layout_(layout),
      layer_bytes_(static_cast<size_t>(layout.block_bytes() / layout.n_layers)),
      group_layers_(group_layers),
      device_(static_cast<uint8_t*>(device)),
      arena_(arena) {}

uint64_t Copier::next_bytes(const Transfer& transfer) const {
  const int64_t layers = std::min(group_layers_, layout_.n_layers - transfer.layers());
  return transfer.bytes() / static_cast<uint64_t>(layout_.n_layers) * static_cast<uint64_t>(layers);
}

bool Copier::advance(Transfer& transfer) {
  if (transfer.kind() == Transfer::Kind::kErase) {
    for (const Transfer::Piece& piece : transfer.pieces) arena_.erase(piece.host);
    end(transfer);
    return true;
  }
  if (transfer.cancelled_.load(std::memory_order_relaxed)) {
    give_up(transfer);
    return true;
  }
  const bool saves = transfer.kind() == Transfer::Kind::kSave;
  const int64_t begin = transfer.layers();
  const int64_t layers = std::min(begin + group_layers_, layout_.n_layers);
  if (begin == 0) {
    if (transfer.start == TimePoint{}) transfer.start = steady_now();
    for (Transfer::Piece& piece : transfer.pieces) {
      if (saves) {
        arena_.begin(piece.host);
      } else if (!arena_.has(piece.host)) {
        piece.outcome = Transfer::Outcome::kMissing;
      }
    }
  }
  for (Transfer::Piece& piece : transfer.pieces) {
    if (saves) {
      save(piece, begin, layers);
    } else if (piece.outcome == Transfer::Outcome::kDone) {
      load(piece, begin, layers);
    }
  }
  std::fill(transfer.copied.begin() + begin, transfer.copied.begin() + layers, steady_now());
  transfer.layers_.store(layers, std::memory_order_release);
  if (layers < layout_.n_layers) return false;
  if (saves) {
    for (const Transfer::Piece& piece : transfer.pieces) arena_.commit(piece.host);
  }
  end(transfer);
  return true;
}

void Copier::give_up(Transfer& transfer) {
  for (Transfer::Piece& piece : transfer.pieces) piece.outcome = Transfer::Outcome::kFailed;
  end(transfer);
}

void Copier::end(Transfer& transfer) {
  transfer.end = steady_now();
  if (transfer.start == TimePoint{}) transfer.start = transfer.end;  // it never began
  transfer.ended_.store(true, std::memory_order_release);
}

void Copier::save(Transfer::Piece& piece, int64_t begin, int64_t end) {
  for (size_t i = 0; i < piece.device_blocks.size(); ++i) {
    const uint8_t* from = device_ + piece.device_blocks[i] * layout_.block_bytes();
    uint8_t* to = arena_.block(piece.host.blocks[i]);
    const std::span<uint64_t> checksums = arena_.checksums(piece.host.blocks[i]);
    for (int64_t l = begin; l < end; ++l) {
      std::memcpy(to + l * layer_bytes_, from + l * layer_bytes_, layer_bytes_);
      checksums[l] = checksum_of({to + l * layer_bytes_, layer_bytes_});
    }
  }
}

void Copier::load(Transfer::Piece& piece, int64_t begin, int64_t end) {
  for (size_t i = 0; i < piece.device_blocks.size(); ++i) {
    const uint8_t* from = arena_.block(piece.host.blocks[i]);
    uint8_t* to = device_ + piece.device_blocks[i] * layout_.block_bytes();
    const std::span<const uint64_t> checksums = arena_.checksums(piece.host.blocks[i]);
    for (int64_t l = begin; l < end; ++l) {
      std::memcpy(to + l * layer_bytes_, from + l * layer_bytes_, layer_bytes_);
      // What was copied is what will be read: the file may change under our feet.
      if (piece.verify && checksum_of({to + l * layer_bytes_, layer_bytes_}) != checksums[l]) {
        piece.outcome = Transfer::Outcome::kDamaged;
        return;
      }
    }
  }
}

double measure_load_rate(const kernels::KvLayout& layout, void* device,
                         const std::vector<int32_t>& blocks, HostArena& arena, bool verify) {
  const auto layer_bytes = static_cast<size_t>(layout.block_bytes() / layout.n_layers);
  uint64_t sum = 0;  // keeps the checksums from being left out
  const auto copy_all = [&] {
    for (size_t i = 0; i < blocks.size(); ++i) {
      const uint8_t* from = arena.block(static_cast<int32_t>(i % arena.blocks()));
      uint8_t* to = static_cast<uint8_t*>(device) + blocks[i] * layout.block_bytes();
      for (int64_t l = 0; l < layout.n_layers; ++l) {
        std::memcpy(to + l * layer_bytes, from + l * layer_bytes, layer_bytes);
        if (verify) sum += checksum_of({to + l * layer_bytes, layer_bytes});
      }
    }
  };
  copy_all();  // touches the pages
  const TimePoint start = steady_now();
  copy_all();
  const double seconds = to_seconds(steady_now() - start);
  RAG_CHECK(!verify || sum != 0 || blocks.empty());
  return static_cast<double>(blocks.size()) * static_cast<double>(layout.block_bytes()) /
         std::max(seconds, 1e-9);
}

TransferActor::TransferActor(Copier copier, std::function<void()> ended,
                             std::optional<double> throttle_mib_s)
    : copier_(copier),
      ended_(std::move(ended)),
      throttle_mib_s_(throttle_mib_s),
      thread_([this] { run(); }) {}

TransferActor::~TransferActor() { stop(); }

void TransferActor::stop() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_one();
  progress_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void TransferActor::submit(std::shared_ptr<Transfer> transfer) {
  {
    std::lock_guard lock(mutex_);
    waiting_.push_back(std::move(transfer));
  }
  wake_.notify_one();
}

bool TransferActor::wait(const Transfer& transfer, int64_t layer) {
  const auto there = [&] { return transfer.layers() > layer || transfer.ended(); };
  if (there()) return true;
  std::unique_lock lock(mutex_);
  return progress_.wait_for(lock, kPatience, [&] { return there() || stopping_; }) && there();
}

bool TransferActor::wait_for_end(const Transfer& transfer) {
  if (transfer.ended()) return true;
  std::unique_lock lock(mutex_);
  return progress_.wait_for(lock, kPatience, [&] { return transfer.ended() || stopping_; }) &&
         transfer.ended();
}

bool TransferActor::pace(std::unique_lock<std::mutex>& lock, TimePoint until) {
  return !wake_.wait_until(lock, until, [this] { return stopping_; });
}

void TransferActor::run() {
  for (;;) {
    std::shared_ptr<Transfer> transfer;
    {
      std::unique_lock lock(mutex_);
      wake_.wait(lock, [this] { return stopping_ || !waiting_.empty(); });
      if (stopping_) return;
      transfer = std::move(waiting_.front());
      waiting_.pop_front();
    }
    for (bool ended = false; !ended;) {
      if (throttle_mib_s_.has_value()) {
        if (transfer->layers() == 0) transfer->start = steady_now();
        const double seconds =
            static_cast<double>(copier_.next_bytes(*transfer)) / (*throttle_mib_s_ * 1024 * 1024);
        std::unique_lock lock(mutex_);
        const auto pause =
            std::chrono::duration_cast<Duration>(std::chrono::duration<double>(seconds));
        if (!pace(lock, steady_now() + pause)) return;
      }
      ended = copier_.advance(*transfer);
      std::lock_guard lock(mutex_);
      progress_.notify_all();
      if (stopping_) return;
    }
    ended_();
  }
}

}  // namespace ragcache::worker
