// What the grader puts behind a student's file: a function with a fixed interface that calls the
// student's, whatever its parameters are.
#pragma once

#include <type_traits>
#include <utility>

namespace lab::grader {

template <class... Parameters, size_t... kIndex>
void call(void (*function)(Parameters...), void** arguments, std::index_sequence<kIndex...>) {
  function(*static_cast<std::remove_cvref_t<Parameters>*>(arguments[kIndex])...);
}
// arguments: one address for each parameter, where its value lies.
template <class... Parameters>
void call(void (*function)(Parameters...), void** arguments) {
  call(function, arguments, std::index_sequence_for<Parameters...>());
}

}  // namespace lab::grader
