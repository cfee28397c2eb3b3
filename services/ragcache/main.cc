#include "services/ragcache/cli.h"

int main(int argc, char** argv) { return ragcache::run_cli(argc, argv); }
