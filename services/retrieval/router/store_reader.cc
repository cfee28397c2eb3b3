#include "services/retrieval/router/store_reader.h"

#include <boost/asio/post.hpp>
#include <utility>

#include "common/status.h"

namespace ragcache::retrieval {

void StoreReader::read_changes(const IndexKey& key, const LogPosition& position,
                               const LogPart& part, Done<ChangeBatch> done) {
  boost::asio::post(change_pool_, [this, key, position, part, done = std::move(done)]() mutable {
    const auto read = [&]() -> absl::StatusOr<ChangeBatch> {
      RAG_ASSIGN_OR_RETURN(const ChangePage page,
                           store_.changes_after(key.corpus, position, kChangesMax, part));
      ChangeBatch batch{.key = key, .after = position.sequence, .upto = page.upto, .end = page.end};
      for (const VectorChange& change : page.changes) {
        if (change.removed) {
          batch.removed.push_back(change.vector);
        } else {
          batch.added.push_back(change.vector);
          batch.vectors.insert(batch.vectors.end(), change.embedding.begin(),
                               change.embedding.end());
        }
      }
      return batch;
    };
    done(read());
  });
}

void StoreReader::find_documents(int64_t corpus, std::vector<int64_t> vectors,
                                 Done<Documents> done) {
  boost::asio::post(search_pool_,
                    [this, corpus, vectors = std::move(vectors), done = std::move(done)]() mutable {
                      const auto find = [&]() -> absl::StatusOr<Documents> {
                        Documents documents;
                        RAG_ASSIGN_OR_RETURN(documents.records, store_.find_by_vector(vectors));
                        documents.sequence = store_.last_sequence(corpus);
                        return documents;
                      };
                      done(find());
                    });
}

}  // namespace ragcache::retrieval
