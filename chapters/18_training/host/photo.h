// --infer: a trained net reads one photo.
#pragma once

#include "options.h"

namespace training {

// Says what the net of --checkpoint takes the photo of --infer for; --json gets all probabilities.
lab::ExitCode read_photo(const TrainingOptions& options);

}  // namespace training
