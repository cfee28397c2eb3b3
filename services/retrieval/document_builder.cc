#include "services/retrieval/document_builder.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "common/status.h"

namespace ragcache::retrieval {
namespace {

// What the encoder reads of a piece.
std::string embedded_text(const std::string& title, const std::string& text) {
  return title.empty() ? text : title + "\n" + text;
}

const std::vector<float>* known_embedding(const DocumentBuilder::Order& order, size_t i,
                                          const Piece& piece) {
  if (i >= order.known.size() || order.known[i].text != piece.text) return nullptr;
  return order.known[i].embedding.has_value() ? &*order.known[i].embedding : nullptr;
}

}  // namespace

absl::StatusOr<DocumentBuilder::Built> DocumentBuilder::build(std::vector<Order> orders,
                                                              std::stop_token stop) const {
  Built built;
  std::vector<std::string> texts;
  for (const Order& order : orders) {
    if (stop.stop_requested()) return absl::CancelledError("stopped");
    BuiltDocument& made = built.documents.emplace_back();
    made.cut = order.cut;
    made.pieces = chunker_.cut(order.document.title, order.document.text, order.cut);
    for (size_t i = 0; i < made.pieces.size(); ++i) {
      if (known_embedding(order, i, made.pieces[i]) == nullptr) {
        texts.push_back(embedded_text(order.document.title, made.pieces[i].text));
      }
    }
  }
  Embeddings embedded;
  if (!texts.empty()) {
    RAG_ASSIGN_OR_RETURN(embedded,
                         embedder_.embed(texts, Embedder::Lane::kIngest, std::move(stop)));
  }
  built.tokens = embedded.tokens;
  const size_t dimension = embedder_.dimension();
  auto next = embedded.vectors.begin();
  for (size_t d = 0; d < orders.size(); ++d) {
    BuiltDocument& made = built.documents[d];
    for (size_t i = 0; i < made.pieces.size(); ++i) {
      if (const std::vector<float>* known = known_embedding(orders[d], i, made.pieces[i])) {
        made.vectors.insert(made.vectors.end(), known->begin(), known->end());
      } else {
        std::copy_n(next, dimension, std::back_inserter(made.vectors));
        next += static_cast<ptrdiff_t>(dimension);
      }
    }
    made.document = std::move(orders[d].document);
  }
  return built;
}

}  // namespace ragcache::retrieval
