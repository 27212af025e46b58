// The test runner's main function.
#define DOCTEST_CONFIG_IMPLEMENT
#include <doctest/doctest.h>

#include "forms_cases.h"

int main(int argc, char** argv) {
  vgpu::rows::whole_run = argc == 1;
  return doctest::Context(argc, argv).run();
}
