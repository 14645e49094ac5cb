// A torch allocator for the CPU that keeps what is freed, as torch's own does on CUDA: large tensors come from memory
// that was used before, and no call pays for the page faults of fresh memory.
#include <c10/core/CPUAllocator.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <map>
#include <mutex>

namespace {

constexpr size_t LARGE = 1 << 20;  // smaller ones are malloc's, which keeps its pages too
constexpr size_t PAGE = 2 << 20;

struct Block {
  void* start;
  size_t size;
};

class Keeping final : public c10::Allocator {
 public:
  static Keeping& instance() {
    static auto* keeping = new Keeping;
    return *keeping;
  }

  c10::DataPtr allocate(size_t bytes) override {
    if (bytes < LARGE) return small_->allocate(bytes);
    size_t size = (bytes + PAGE - 1) / PAGE * PAGE;
    Block* block = kept(size);
    if (!block) block = fresh(size);
    if (fills) std::memset(block->start, 0xfe, bytes);
    return {block->start, block, &take_back, c10::Device(c10::DeviceType::CPU)};
  }

  void copy_data(void* to, const void* from, size_t bytes) const override { default_copy_data(to, from, bytes); }

  void release() {
    std::lock_guard<std::mutex> held(lock_);
    for (auto& entry : free_) unmap(entry.second);
    free_.clear();
    free_bytes_ = 0;
  }

  std::atomic<bool> fills{false};

 private:
  Block* kept(size_t size) {
    std::lock_guard<std::mutex> held(lock_);
    auto found = free_.lower_bound(size);
    if (found == free_.end() || found->first > size + size / 4) return nullptr;
    Block* block = found->second;
    free_.erase(found);
    free_bytes_ -= block->size;
    return block;
  }

  Block* fresh(size_t size) {
    for (int attempt = 0; attempt < 2; ++attempt) {
      void* start = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
      if (start != MAP_FAILED) return new Block{start, size};
      release();
    }
    TORCH_CHECK(false, "not enough memory: you tried to allocate ", size, " bytes");
  }

  static void take_back(void* context) {
    auto* block = static_cast<Block*>(context);
    Keeping& self = instance();
    std::lock_guard<std::mutex> held(self.lock_);
    if (self.free_bytes_ + block->size > self.most_) return unmap(block);
    self.free_.emplace(block->size, block);
    self.free_bytes_ += block->size;
  }

  static void unmap(Block* block) {
    munmap(block->start, block->size);
    delete block;
  }

  c10::Allocator* small_ = c10::GetDefaultCPUAllocator();
  std::mutex lock_;
  std::multimap<size_t, Block*> free_;
  size_t free_bytes_ = 0;
  size_t most_ = size_t(sysconf(_SC_PHYS_PAGES)) * size_t(sysconf(_SC_PAGE_SIZE)) / 8;
};

}  // namespace

extern "C" void keeping_install() { c10::SetCPUAllocator(&Keeping::instance(), 255); }
extern "C" void keeping_fill(bool fills) { Keeping::instance().fills = fills; }
extern "C" void keeping_release() { Keeping::instance().release(); }
