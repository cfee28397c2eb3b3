#include "loadgen/cli.h"

int main(int argc, char** argv) { return ragcache::loadgen::run_cli(argc, argv); }
