// The program of the convolutional projection: chapter 16's with --component projection.
#pragma once

// argv[0] is the program, what follows are this program's own flags. Returns the exit code.
int projection_main(int argc, char** argv);
