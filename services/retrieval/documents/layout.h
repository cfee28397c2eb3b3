#pragma once

#include "absl/status/status.h"
#include "common/store/sqlite.h"

namespace ragcache::retrieval {

// Makes the tables of a new documents.db, or brings those of an older program version to this one,
// in one transaction: if it fails the file is as it was. FAILED_PRECONDITION: the file was written
// by a newer version.
absl::Status prepare_layout(SqliteDatabase& database);

}  // namespace ragcache::retrieval
