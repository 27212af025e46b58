// A queue that keeps its memory: what a loop puts in and takes out again costs no allocation.
#pragma once
#include <cstddef>
#include <utility>
#include <vector>

namespace vgpu {

template <class T>
class Queue {
 public:
  bool empty() const { return first_ == items_.size(); }
  std::size_t size() const { return items_.size() - first_; }
  void push(T item) {
    if (items_.capacity() == 0) items_.reserve(8);
    items_.push_back(std::move(item));
  }
  T pop() {
    T item = std::move(items_[first_++]);
    // What is left moves to the front when it is the smaller part.
    if (first_ * 2 > items_.size()) {
      items_.erase(items_.begin(), items_.begin() + static_cast<std::ptrdiff_t>(first_));
      first_ = 0;
    }
    return item;
  }
  void clear() {
    items_.clear();
    first_ = 0;
  }
  // Oldest first.
  auto begin() { return items_.begin() + static_cast<std::ptrdiff_t>(first_); }
  auto begin() const { return items_.begin() + static_cast<std::ptrdiff_t>(first_); }
  auto end() { return items_.end(); }
  auto end() const { return items_.end(); }
  T& operator[](std::size_t i) { return items_[first_ + i]; }

 private:
  std::vector<T> items_;
  std::size_t first_ = 0;  // what stands before it is gone
};

}  // namespace vgpu
