// A torch allocator for the CPU that keeps what is freed, as torch's own does on CUDA: large tensors come from memory
// that was used before, and no call pays for the page faults of fresh memory.
#include <c10/core/CPUAllocator.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <map>
#include <mutex>
#include <unordered_map>

namespace {

constexpr size_t LARGE = 1 << 20;  // smaller ones are malloc's, which keeps its pages too
constexpr size_t PAGE = 2 << 20;

class Keeping final : public c10::Allocator {
 public:
  static Keeping& instance() {
    static auto* keeping = new Keeping;
    return *keeping;
  }

  c10::DataPtr allocate(size_t bytes) override {
    if (bytes < LARGE) return small_->allocate(bytes);
    size_t size = (bytes + PAGE - 1) / PAGE * PAGE;
    void* start = kept(size);
    if (!start) start = fresh(size);
    if (fills) std::memset(start, 0xfe, bytes);
    return {start, start, &take_back, c10::Device(c10::DeviceType::CPU)};
  }

  // oneDNN allocates its scratch memory without a DataPtr.
  c10::DeleterFnPtr raw_deleter() const override { return &take_back; }

  void copy_data(void* to, const void* from, size_t bytes) const override { default_copy_data(to, from, bytes); }

  void release() {
    std::lock_guard<std::mutex> held(lock_);
    for (auto [size, start] : free_) munmap(start, size);
    free_.clear();
    free_bytes_ = 0;
  }

  std::atomic<bool> fills{false};

 private:
  void* kept(size_t size) {
    std::lock_guard<std::mutex> held(lock_);
    auto found = free_.lower_bound(size);
    if (found == free_.end() || found->first > size + size / 4) return nullptr;
    auto [whole, start] = *found;
    free_.erase(found);
    free_bytes_ -= whole;
    used_.emplace(start, whole);
    return start;
  }

  void* fresh(size_t size) {
    for (int attempt = 0; attempt < 2; ++attempt) {
      void* start = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
      if (start != MAP_FAILED) {
        std::lock_guard<std::mutex> held(lock_);
        used_.emplace(start, size);
        return start;
      }
      release();
    }
    TORCH_CHECK_WITH(OutOfMemoryError, false, "not enough memory: you tried to allocate ", size, " bytes");
  }

  static void take_back(void* start) {
    Keeping& self = instance();
    std::unique_lock<std::mutex> held(self.lock_);
    auto found = self.used_.find(start);
    if (found == self.used_.end()) {
      held.unlock();
      return self.small_->raw_deallocate(start);
    }
    size_t size = found->second;
    self.used_.erase(found);
    if (self.free_bytes_ + size > self.most_) {
      munmap(start, size);
      return;
    }
    self.free_.emplace(size, start);
    self.free_bytes_ += size;
  }

  c10::Allocator* small_ = c10::GetDefaultCPUAllocator();
  std::mutex lock_;
  std::unordered_map<void*, size_t> used_;
  std::multimap<size_t, void*> free_;
  size_t free_bytes_ = 0;
  size_t most_ = size_t(sysconf(_SC_PHYS_PAGES)) * size_t(sysconf(_SC_PAGE_SIZE)) / 8;
};

}  // namespace

extern "C" void keeping_install() { c10::SetCPUAllocator(&Keeping::instance(), 255); }
extern "C" void keeping_fill(bool fills) { Keeping::instance().fills = fills; }
extern "C" void keeping_release() { Keeping::instance().release(); }
