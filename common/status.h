#pragma once

#include "absl/status/status.h"
#include "absl/status/statusor.h"

// Returns the Status of `expression` from the enclosing function if it is not OK.
#define RAG_RETURN_IF_ERROR(expression)                                              \
  do {                                                                               \
    if (absl::Status rag_status = (expression); !rag_status.ok()) return rag_status; \
  } while (false)

#define RAG_CONCAT_INNER(a, b) a##b
#define RAG_CONCAT(a, b) RAG_CONCAT_INNER(a, b)

// RAG_ASSIGN_OR_RETURN(auto x, f()): declares x from a StatusOr, or returns its Status.
#define RAG_ASSIGN_OR_RETURN(declaration, expression) \
  RAG_ASSIGN_OR_RETURN_INNER(RAG_CONCAT(rag_status_or_, __LINE__), declaration, expression)
#define RAG_ASSIGN_OR_RETURN_INNER(status_or, declaration, expression) \
  auto status_or = (expression);                                       \
  if (!status_or.ok()) return std::move(status_or).status();           \
  declaration = *std::move(status_or)
