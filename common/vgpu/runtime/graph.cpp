#include "graph.h"

#include <algorithm>
#include <queue>
#include <unordered_set>

namespace vgpu::runtime {
namespace {

// Never destroyed, as the runtime itself.
std::unordered_set<const void*>& live_nodes() {
  static auto* const live = new std::unordered_set<const void*>;
  return *live;
}
std::unordered_set<const void*>& live_graphs() {
  static auto* const live = new std::unordered_set<const void*>;
  return *live;
}
std::vector<UserObject>& dead_objects() {
  thread_local std::vector<UserObject> dead;
  return dead;
}

void map_nodes(const Graph& graph, std::unordered_map<const Node*, Node*>& of) {
  for (const auto& node : graph.nodes) {
    of[node->original] = node.get();
    if (const auto* child = std::get_if<ChildOp>(&node->operation)) map_nodes(*child->graph, of);
  }
}

// Appends the steps of `graph`, child graphs unfolded. Its first steps come after the steps `before`.
// Returns its last steps, or nothing when its edges form a cycle.
std::optional<std::vector<std::size_t>> unfold(const Graph& graph,
                                               const std::vector<std::size_t>& before,
                                               std::vector<Exec::Step>& steps,
                                               const Node** culprit) {
  Node* in_cycle = nullptr;
  const auto order = graph.ordered(&in_cycle);
  if (!order) {
    *culprit = in_cycle;
    return std::nullopt;
  }
  std::unordered_map<const Node*, std::size_t> at;
  std::vector<std::size_t> ends;
  for (const Node* node : *order) {
    std::vector<std::size_t> after;
    for (const Node* other : node->before) after.push_back(at.at(other));
    if (after.empty()) after = before;
    if (const auto* child = std::get_if<ChildOp>(&node->operation)) {
      auto inner = unfold(*child->graph, after, steps, culprit);
      if (!inner) return std::nullopt;
      if (!inner->empty()) after = std::move(*inner);
    }
    at[node] = steps.size();
    if (node->after.empty()) ends.push_back(steps.size());
    steps.push_back({node, std::move(after), 0});
  }
  return ends;
}

}  // namespace

Node* find_node(const void* handle) {
  return live_nodes().contains(handle) ? static_cast<Node*>(const_cast<void*>(handle)) : nullptr;
}
Graph* find_graph(const void* handle) {
  return live_graphs().contains(handle) ? static_cast<Graph*>(const_cast<void*>(handle)) : nullptr;
}

Node::Node(Graph& g, std::uint64_t number, Operation what)
    : graph(&g), id(number), operation(std::move(what)) {
  live_nodes().insert(this);
}
Node::~Node() { live_nodes().erase(this); }

void release(UserObject& object, std::uint64_t references) {
  object.references -= std::min(object.references, references);
  if (object.references > 0) return;
  Runtime::get().user_objects.erase(&object);
  dead_objects().push_back(object);
  delete &object;
}

void run_destructors() {
  std::vector<UserObject> dead = std::move(dead_objects());
  dead_objects().clear();
  for (const UserObject& object : dead) call_host({object.destroy, object.pointer, {}});
}

Graph::Graph() { live_graphs().insert(this); }
Graph::~Graph() {
  live_graphs().erase(this);
  for (const auto& [object, references] : objects) release(*object, references);
}

bool Graph::has_memory_nodes() const {
  return std::any_of(nodes.begin(), nodes.end(), [](const auto& node) {
    const auto* child = std::get_if<ChildOp>(&node->operation);
    return std::holds_alternative<AllocOp>(node->operation) ||
           std::holds_alternative<FreeOp>(node->operation) ||
           (child && child->graph->has_memory_nodes());
  });
}

Node* Graph::add(Operation operation, std::span<Node* const> before) {
  nodes.push_back(std::make_unique<Node>(*this, next_id_++, std::move(operation)));
  Node* node = nodes.back().get();
  for (Node* other : before) add_edge(*other, *node);
  return node;
}

void Graph::remove(Node& node) {
  for (Node* other : node.before) std::erase(other->after, &node);
  for (Node* other : node.after) std::erase(other->before, &node);
  std::erase_if(nodes, [&](const auto& other) { return other.get() == &node; });
}

bool Graph::has_edge(const Node& from, const Node& to) const {
  return std::find(from.after.begin(), from.after.end(), &to) != from.after.end();
}
void Graph::add_edge(Node& from, Node& to) {
  if (has_edge(from, to)) return;
  from.after.push_back(&to);
  to.before.push_back(&from);
}
void Graph::remove_edge(Node& from, Node& to) {
  std::erase(from.after, &to);
  std::erase(to.before, &from);
}

std::optional<std::vector<Node*>> Graph::ordered(Node** in_cycle) const {
  const auto later = [](const Node* a, const Node* b) { return a->id > b->id; };
  std::priority_queue<Node*, std::vector<Node*>, decltype(later)> ready(later);
  std::unordered_map<const Node*, std::size_t> missing;
  for (const auto& node : nodes) {
    missing[node.get()] = node->before.size();
    if (node->before.empty()) ready.push(node.get());
  }
  std::vector<Node*> order;
  while (!ready.empty()) {
    order.push_back(ready.top());
    ready.pop();
    for (Node* next : order.back()->after)
      if (--missing[next] == 0) ready.push(next);
  }
  if (order.size() == nodes.size()) return order;
  for (const auto& node : nodes)
    if (missing[node.get()] > 0 && in_cycle) *in_cycle = node.get();
  return std::nullopt;
}

std::shared_ptr<Graph> Graph::clone() const {
  auto copy = std::make_shared<Graph>();
  std::unordered_map<const Node*, Node*> of;
  for (const auto& node : nodes) {
    Operation operation = node->operation;
    if (auto* child = std::get_if<ChildOp>(&operation)) {
      child->graph = child->graph->clone();
      child->graph->in_node = true;
    }
    if (auto* kernel = std::get_if<KernelOp>(&operation)) kernel->pointers.clear();
    Node* fresh = copy->add(std::move(operation), {});
    fresh->id = node->id;
    fresh->original = node.get();
    of[node.get()] = fresh;
  }
  copy->next_id_ = next_id_;
  for (const auto& node : nodes)
    for (const Node* other : node->before) copy->add_edge(*of.at(other), *of.at(node.get()));
  for (const auto& [object, references] : objects) {
    object->references += references;
    copy->objects[object] += references;
  }
  return copy;
}

Status Exec::make(const Graph& source, const Node** culprit) {
  std::vector<Step> trial;
  if (!unfold(source, {}, trial, culprit)) return Status::invalid_value;
  for (const Step& step : trial)
    if (const Status status = check(step.node->operation); status != Status::success) {
      *culprit = step.node;
      return status;
    }
  graph = source.clone();
  map_nodes(*graph, of);
  unfold(*graph, {}, steps, culprit);
  // Chains of steps: a step continues the chain of a step that it comes after, unless another step
  // has done so already. Then it begins a new chain.
  std::vector<std::size_t> ends;  // by chain: its last step
  for (std::size_t i = 0; i < steps.size(); ++i) {
    const auto free = std::find_if(steps[i].before.begin(), steps[i].before.end(),
                                   [&](std::size_t b) { return ends[steps[b].chain] == b; });
    if (free != steps[i].before.end()) {
      steps[i].chain = steps[*free].chain;
      ends[steps[i].chain] = i;
    } else {
      steps[i].chain = ends.size();
      ends.push_back(i);
    }
  }
  timelines.resize(ends.size());
  return Status::success;
}

UpdateResult compatible(const Operation& from, const Operation& to) {
  if (from.index() != to.index()) return UpdateResult::node_type_changed;
  const auto memory = [](const void* pointer) {
    const auto found = Runtime::get().memory().find(reinterpret_cast<std::uint64_t>(pointer));
    return found && found->kind != MemoryKind::pinned;
  };
  if (const auto* a = std::get_if<CopyOp>(&from)) {
    // The two ends stay where they are, in memory of the device or of the host, and the box stays
    // a line, a plane or a block.
    const auto& b = std::get<CopyOp>(to);
    const bool place = a->dst.bytes || b.dst.bytes || a->src.bytes || b.src.bytes ||
                       (memory(a->dst.pointer) == memory(b.dst.pointer) &&
                        memory(a->src.pointer) == memory(b.src.pointer));
    const bool line = a->height * a->depth > 1 || b.height * b.depth == 1;
    if (!place || !line) return UpdateResult::parameters_changed;
  }
  if (const auto* a = std::get_if<FillOp>(&from))
    if (a->height * a->depth == 1 && std::get<FillOp>(to).height > 1)
      return UpdateResult::parameters_changed;
  if (const auto* a = std::get_if<KernelOp>(&from))
    if (a->config.cooperative != std::get<KernelOp>(to).config.cooperative)
      return UpdateResult::attributes_changed;
  if (const auto* a = std::get_if<FreeOp>(&from))
    if (a->pointer != std::get<FreeOp>(to).pointer) return UpdateResult::parameters_changed;
  if (const auto* a = std::get_if<AllocOp>(&from))
    if (a->pointer != std::get<AllocOp>(to).pointer) return UpdateResult::parameters_changed;
  return UpdateResult::success;
}

UpdateResult Exec::replace(Node& node, const Operation& by) {
  if (const auto result = compatible(node.operation, by); result != UpdateResult::success)
    return result;
  if (check(by) != Status::success) return UpdateResult::parameters_changed;
  node.operation = by;
  return UpdateResult::success;
}

namespace {

// Nodes are paired by the order in which they were added.
UpdateResult compare(const Graph& own, const Graph& source, const Node** culprit,
                     const Node** from) {
  if (own.nodes.size() != source.nodes.size()) return UpdateResult::topology_changed;
  std::unordered_map<const Node*, std::size_t> place, source_place;
  for (std::size_t i = 0; i < own.nodes.size(); ++i) {
    place[own.nodes[i].get()] = i;
    source_place[source.nodes[i].get()] = i;
  }
  for (std::size_t i = 0; i < own.nodes.size(); ++i) {
    const Node& a = *own.nodes[i];
    const Node& b = *source.nodes[i];
    *culprit = &b;
    if (a.operation.index() != b.operation.index()) return UpdateResult::node_type_changed;
    std::set<std::size_t> a_before;
    for (const Node* other : a.before) a_before.insert(place.at(other));
    for (const Node* other : b.before)
      if (!a_before.contains(source_place.at(other))) {
        *from = other;
        return UpdateResult::topology_changed;
      }
    if (a.before.size() != b.before.size()) return UpdateResult::topology_changed;
    const auto result = compatible(a.operation, b.operation);
    if (result != UpdateResult::success) return result;
    if (check(b.operation) != Status::success) return UpdateResult::parameters_changed;
    if (const auto* child = std::get_if<ChildOp>(&a.operation)) {
      const auto inner =
          compare(*child->graph, *std::get<ChildOp>(b.operation).graph, culprit, from);
      if (inner != UpdateResult::success) return inner;
    }
  }
  *culprit = nullptr;
  return UpdateResult::success;
}

void assign(Graph& own, const Graph& source) {
  for (std::size_t i = 0; i < own.nodes.size(); ++i) {
    Operation& to = own.nodes[i]->operation;
    const Operation& by = source.nodes[i]->operation;
    if (const auto* child = std::get_if<ChildOp>(&to))
      assign(*child->graph, *std::get<ChildOp>(by).graph);
    else
      to = by;
  }
}

}  // namespace

UpdateResult Exec::update(const Graph& source, const Node** culprit, const Node** from) {
  // All or nothing.
  const auto result = compare(*graph, source, culprit, from);
  if (result == UpdateResult::success) assign(*graph, source);
  return result;
}

}  // namespace vgpu::runtime
