#include "services/retrieval/program.h"

int main(int argc, char** argv) {
  return ragcache::run_program(ragcache::retrieval::retrieval_program(), argc, argv);
}
