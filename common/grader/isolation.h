// What keeps a student's code away from the rest of the machine.
#pragma once

#include <string>
#include <vector>

namespace lab::grader {

// From the best to none.
enum class Isolation {
  bubblewrap,  // no network, no other processes, a file system of its own; bounded /tmp
  other_user,  // the grader is root: a user of its own, whose processes all end
  none,        // the rights of whoever runs the grader
};

// The best that this machine allows, found by trying.
Isolation best_isolation();
const char* isolation_name(Isolation isolation);

// A command under bubblewrap. Of the file system it sees the system's programs and libraries and
// what is listed: pairs of a path here and a path there.
using Places = std::vector<std::pair<std::string, std::string>>;
std::vector<std::string> wrapped(const std::vector<std::string>& command, const Places& read_only,
                                 const Places& writable, const std::string& folder,
                                 const std::vector<std::pair<std::string, std::string>>& variables);

// A user id for Isolation::other_user that no other process of the grader holds: all of a user's processes are
// ended together. The search begins at `first`. It is taken until `taken` is closed; -1 where no
// lock can be had, and then the user is `first`.
unsigned free_user(unsigned first, int& taken);
// The user of the process that asks, until it ends.
unsigned user_of_this_process();
// In a forked process, or behind vfork(): becomes that user, for good. False where it cannot.
bool become(unsigned user);
// In a forked process that became another user: from now on it makes, opens for writing and removes no
// files. Does nothing where the kernel knows no Landlock.
void write_no_files();
// In a forked process: all memory that is mapped counts, shared memory too, up to the limit that the
// process has for its own data; and few files are open.
void limit_address_space();
// In a forked process: executes arguments[0], if need be as soon as no process has it open for writing any more,
// for which it waits 10 s. Returns only where that fails.
void execute_when_closed(char* const arguments[], char* const environment[]);
// Ends all processes of that user, and removes what it left where everybody may write.
void end_and_clean_up(unsigned user);

// A folder that another user has for as long as this lives, with all that is in it: for a process that runs
// as that user. Its processes end with it.
class LentFolder {
 public:
  explicit LentFolder(const std::string& folder);
  ~LentFolder();
  LentFolder(const LentFolder&) = delete;
  LentFolder& operator=(const LentFolder&) = delete;
  unsigned user() const { return user_; }
  // Whether the user can execute that program and write into the folder.
  bool reaches(const std::string& program) const;

 private:
  std::string folder_;
  int taken_ = -1;
  unsigned user_;
};

}  // namespace lab::grader
