// The program of the gradients of deformable attention: chapter 15's with --deformable.
#pragma once

// argv[0] is the program, what follows are this program's own flags. Returns the exit code.
int deformable_main(int argc, char** argv);
