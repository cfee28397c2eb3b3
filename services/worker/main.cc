#include "services/worker/program.h"

int main(int argc, char** argv) {
  return ragcache::run_program(ragcache::worker::worker_program(), argc, argv);
}
