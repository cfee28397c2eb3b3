#include "services/controller/program.h"

int main(int argc, char** argv) {
  return ragcache::run_program(ragcache::controller::controller_program(), argc, argv);
}
