// cachesvc: the program.
#include "cachesvc/daemon/program.h"

int main(int argc, char** argv) { return kv::run_program(argc, argv); }
