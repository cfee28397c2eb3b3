#include "services/gateway/program.h"

int main(int argc, char** argv) {
  return ragcache::run_program(ragcache::gateway::gateway_program(), argc, argv);
}
