// A graph: operations and what each comes after. As a data structure only; the API is in
// cudart/graph*.cpp. Handles of nodes and graphs are their addresses.
#pragma once
#include <optional>
#include <span>
#include <unordered_map>

#include "operation.h"

namespace vgpu::runtime {

struct Node {
  Node(Graph& graph, std::uint64_t id, Operation operation);
  ~Node();
  Node(const Node&) = delete;
  Node& operator=(const Node&) = delete;

  Graph* graph;
  std::uint64_t id;  // counts from 0 within the graph
  Operation operation;
  std::vector<Node*> before, after;  // without duplicates
  const Node* original = nullptr;    // in a copy of a graph: the node that was copied
};

// A live node or graph, also one inside a child node; null when the handle is none.
Node* find_node(const void* handle);
Graph* find_graph(const void* handle);

// Memory of the program's own that graphs keep alive (cudaUserObjectCreate).
struct UserObject {
  void* pointer = nullptr;
  void (*destroy)(void*) = nullptr;
  std::uint64_t references = 0;
};
// Gives back references. Destructors run when the lock is free: run_destructors().
void release(UserObject& object, std::uint64_t references);
void run_destructors();

struct Graph {
  Graph();
  ~Graph();
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;

  std::vector<std::unique_ptr<Node>> nodes;  // in the order in which they were added
  std::map<UserObject*, std::uint64_t> objects;
  bool in_node = false;  // it belongs to a child node
  bool has_memory_nodes() const;

  // `before` must be nodes of this graph.
  Node* add(Operation operation, std::span<Node* const> before);
  void remove(Node& node);
  bool has_edge(const Node& from, const Node& to) const;
  void add_edge(Node& from, Node& to);
  void remove_edge(Node& from, Node& to);
  // Each node behind all that it comes after, otherwise as they were added. Nothing when that is
  // impossible; `in_cycle` is then a node of a cycle.
  std::optional<std::vector<Node*>> ordered(Node** in_cycle = nullptr) const;
  // The copy's nodes know their originals, those in child graphs too.
  std::shared_ptr<Graph> clone() const;

 private:
  std::uint64_t next_id_ = 0;
};

// Whether an executable graph takes the operations of another graph, and why not.
enum class UpdateResult {
  success,
  topology_changed,
  node_type_changed,
  parameters_changed,
  attributes_changed,
};

// A graph that can be launched. It has its own copy of the graph it was made from.
struct Exec {
  std::shared_ptr<Graph> graph;
  unsigned long long flags = 0;
  std::unordered_map<const Node*, Node*> of;  // by the program's node, those in child graphs too
  std::set<const Node*> disabled;             // own nodes

  // What runs, child graphs unfolded: node, which earlier steps it comes after, and on which chain
  // of steps that follow each other it is. A child node is an empty step behind its steps.
  struct Step {
    const Node* node;
    std::vector<std::size_t> before;
    std::size_t chain;
  };
  std::vector<Step> steps;
  std::vector<Timeline> timelines;  // one per chain, while the order of operations is kept
  std::uint32_t number = 0;         // on the timeline of the program
  Clock clock;                      // its last launch's: launches of one exec do not overlap

  // Takes a copy of `source`. An error with the node that is to blame.
  Status make(const Graph& source, const Node** culprit);
  // Gives the nodes the operations of `source`, which must have the same shape.
  UpdateResult update(const Graph& source, const Node** culprit, const Node** from);
  // For one node of its own.
  UpdateResult replace(Node& node, const Operation& by);
};

// Why may `from` not become `to` in an executable graph?
UpdateResult compatible(const Operation& from, const Operation& to);

}  // namespace vgpu::runtime
